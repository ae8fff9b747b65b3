"""Deliveries of models to PCs: how far each is, so that a restarted console goes on with it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "r0006"
down_revision = "r0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "deliveries",
        sa.Column("delivery_id", sa.String(length=16), nullable=False),
        sa.Column("console_id", sa.String(length=32), nullable=False),
        sa.Column("model_id", sa.String(length=400), nullable=False),
        sa.Column("library_digest", sa.String(length=64), nullable=False),
        sa.Column("first", sa.Integer(), nullable=False),
        sa.Column("last", sa.Integer(), nullable=False),
        sa.Column("devices", sa.JSON(), nullable=False),
        sa.Column("done", sa.JSON(), nullable=False),
        sa.Column("begun_s", sa.Double(), nullable=False),
        sa.Column("ended_s", sa.Double(), nullable=True),
        sa.Column("stopped", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("delivery_id", name="pk_deliveries"),
    )
    op.create_index("ix_deliveries_console_id", "deliveries", ["console_id"])
