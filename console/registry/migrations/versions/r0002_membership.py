"""Membership: tags and approval rules of invites, renewed keys, what tells a copied data folder from a restart."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "r0002"
down_revision = "r0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns; every certificate so far was for its device's one key."""
    with op.batch_alter_table("invites") as invites:
        invites.add_column(sa.Column("tags", sa.JSON(), nullable=False, server_default="[]"))
        invites.add_column(sa.Column("rule", sa.JSON(), nullable=False, server_default="{}"))
    with op.batch_alter_table("devices") as devices:
        devices.add_column(sa.Column("tags", sa.JSON(), nullable=False, server_default="[]"))
        devices.add_column(sa.Column("machine_sha256", sa.String(length=64), nullable=False, server_default=""))
        devices.add_column(sa.Column("next_spki_sha256", sa.String(length=64), nullable=True))
        devices.add_column(sa.Column("mark", sa.String(length=64), nullable=False, server_default=""))
        devices.add_column(sa.Column("next_mark", sa.String(length=64), nullable=False, server_default=""))
        devices.create_unique_constraint("uq_devices_next_spki_sha256", ["next_spki_sha256"])
    with op.batch_alter_table("certificates") as certificates:
        certificates.add_column(sa.Column("spki_sha256", sa.String(length=64), nullable=False, server_default=""))
        certificates.add_column(sa.Column("retired_s", sa.Double(), nullable=True))
    op.execute(
        "UPDATE certificates SET spki_sha256 = (SELECT devices.spki_sha256 FROM devices "
        "WHERE devices.device_id = certificates.device_id)"
    )
    op.create_index("ix_certificates_spki_sha256", "certificates", ["spki_sha256"], unique=False)
