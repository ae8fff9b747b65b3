"""Releases of the agent that PCs are offered, and how far each has got."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "r0007"
down_revision = "r0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "releases",
        sa.Column("release_id", sa.String(length=16), nullable=False),
        sa.Column("signed", sa.LargeBinary(), nullable=False),
        sa.Column("description", sa.JSON(), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("expires_s", sa.Double(), nullable=False),
        sa.Column("file", sa.Text(), nullable=False),
        sa.Column("ring", sa.String(length=8), nullable=False),
        sa.Column("percent", sa.Integer(), nullable=False),
        sa.Column("added_s", sa.Double(), nullable=False),
        sa.Column("withdrawn_s", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("release_id", name="pk_releases"),
    )
    op.create_index("ix_releases_sha256", "releases", ["sha256"])
