"""Several consoles on one registry: which they are, what is linked to which, their roots, their own deployments."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "r0004"
down_revision = "r0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables; deployments so far belong to the only console there was."""
    op.create_table(
        "fleet",
        sa.Column("fleet_id", sa.String(length=32), nullable=False),
        sa.Column("fleet_name", sa.String(length=64), nullable=False),
        sa.PrimaryKeyConstraint("fleet_id", name="pk_fleet"),
    )
    op.create_table(
        "consoles",
        sa.Column("console_id", sa.String(length=32), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("seen_s", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("console_id", name="pk_consoles"),
    )
    op.create_table(
        "links",
        sa.Column("device_id", sa.String(length=64), nullable=False),
        sa.Column("console_id", sa.String(length=32), nullable=False),
        sa.Column("connected_s", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["device_id"], ["devices.device_id"], name="fk_links_device_id_devices"),
        sa.ForeignKeyConstraint(["console_id"], ["consoles.console_id"], name="fk_links_console_id_consoles"),
        sa.PrimaryKeyConstraint("device_id", "console_id", name="pk_links"),
    )
    op.create_table(
        "roots",
        sa.Column("spki_sha256", sa.String(length=64), nullable=False),
        sa.Column("console_id", sa.String(length=32), nullable=False),
        sa.Column("pem", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["console_id"], ["consoles.console_id"], name="fk_roots_console_id_consoles"),
        sa.PrimaryKeyConstraint("spki_sha256", name="pk_roots"),
    )
    op.create_table(
        "endorsements",
        sa.Column("spki_sha256", sa.String(length=64), nullable=False),
        sa.Column("signer_spki_sha256", sa.String(length=64), nullable=False),
        sa.Column("until_s", sa.Double(), nullable=False),
        sa.Column("signature", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("spki_sha256", "signer_spki_sha256", name="pk_endorsements"),
    )
    _give_deployments_a_console()


def _give_deployments_a_console() -> None:
    """Make the table anew: its primary key changes, which SQLite cannot alter."""
    columns: list[sa.Column[Any]] = [
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("library_digest", sa.String(length=64), nullable=False),
        sa.Column("settings", sa.JSON(), nullable=False),
        sa.Column("plan", sa.JSON(), nullable=True),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("updated_s", sa.Double(), nullable=False),
    ]
    former = sa.table("deployments", *(sa.column(column.name, column.type) for column in columns))
    rows = [dict(row) for row in op.get_bind().execute(sa.select(former)).mappings()]
    op.drop_table("deployments")
    table = op.create_table(
        "deployments",
        sa.Column("console_id", sa.String(length=32), nullable=False),
        *columns,
        sa.ForeignKeyConstraint(
            ["library_digest"], ["libraries.digest"], name="fk_deployments_library_digest_libraries"
        ),
        sa.PrimaryKeyConstraint("console_id", "name", name="pk_deployments"),
    )
    if rows:
        op.bulk_insert(table, [{"console_id": "", **row} for row in rows])
