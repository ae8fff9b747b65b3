"""First schema: devices, invites, certificates, API keys, libraries, deployments, audit."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "r0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create every table."""
    op.create_table(
        "api_keys",
        sa.Column("key_id", sa.String(length=32), nullable=False),
        sa.Column("key_sha256", sa.LargeBinary(length=32), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("scopes", sa.JSON(), nullable=False),
        sa.Column("created_s", sa.Double(), nullable=False),
        sa.Column("expires_s", sa.Double(), nullable=True),
        sa.Column("revoked_s", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("key_id", name="pk_api_keys"),
    )
    op.create_table(
        "audit",
        sa.Column("sequence", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("at_s", sa.Double(), nullable=False),
        sa.Column("actor", sa.String(length=200), nullable=False),
        sa.Column("action", sa.String(length=64), nullable=False),
        sa.Column("target", sa.String(length=400), nullable=False),
        sa.Column("source", sa.String(length=200), nullable=False),
        sa.Column("detail", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("sequence", name="pk_audit"),
    )
    op.create_index("ix_audit_at_s", "audit", ["at_s"], unique=False)
    op.create_table(
        "invites",
        sa.Column("token_id", sa.String(length=32), nullable=False),
        sa.Column("secret_sha256", sa.LargeBinary(length=32), nullable=False),
        sa.Column("approve", sa.String(length=8), nullable=False),
        sa.Column("max_uses", sa.Integer(), nullable=False),
        sa.Column("hint", sa.String(length=200), nullable=False),
        sa.Column("created_s", sa.Double(), nullable=False),
        sa.Column("created_by", sa.String(length=200), nullable=False),
        sa.Column("expires_s", sa.Double(), nullable=False),
        sa.Column("revoked_s", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("token_id", name="pk_invites"),
    )
    op.create_table(
        "libraries",
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("model_id", sa.String(length=400), nullable=False),
        sa.Column("folder", sa.Text(), nullable=False),
        sa.Column("added_s", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_libraries"),
    )
    op.create_index("ix_libraries_model_id", "libraries", ["model_id"], unique=False)
    op.create_table(
        "deployments",
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("library_digest", sa.String(length=64), nullable=False),
        sa.Column("settings", sa.JSON(), nullable=False),
        sa.Column("plan", sa.JSON(), nullable=True),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("updated_s", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["library_digest"], ["libraries.digest"], name="fk_deployments_library_digest_libraries"
        ),
        sa.PrimaryKeyConstraint("name", name="pk_deployments"),
    )
    op.create_table(
        "devices",
        sa.Column("device_id", sa.String(length=64), nullable=False),
        sa.Column("spki_sha256", sa.String(length=64), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("facts", sa.JSON(), nullable=False),
        sa.Column("device_code", sa.String(length=16), nullable=False),
        sa.Column("key_protection", sa.String(length=16), nullable=False),
        sa.Column("csr", sa.LargeBinary(), nullable=False),
        sa.Column("token_id", sa.String(length=32), nullable=True),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("created_s", sa.Double(), nullable=False),
        sa.Column("approved_s", sa.Double(), nullable=True),
        sa.Column("seen_s", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["token_id"], ["invites.token_id"], name="fk_devices_token_id_invites"),
        sa.PrimaryKeyConstraint("device_id", name="pk_devices"),
        sa.UniqueConstraint("spki_sha256", name="uq_devices_spki_sha256"),
    )
    op.create_index("ix_devices_state", "devices", ["state"], unique=False)
    op.create_table(
        "invite_uses",
        sa.Column("token_id", sa.String(length=32), nullable=False),
        sa.Column("spki_sha256", sa.String(length=64), nullable=False),
        sa.Column("used_s", sa.Double(), nullable=False),
        sa.Column("source", sa.String(length=200), nullable=False),
        sa.ForeignKeyConstraint(["token_id"], ["invites.token_id"], name="fk_invite_uses_token_id_invites"),
        sa.PrimaryKeyConstraint("token_id", "spki_sha256", name="pk_invite_uses"),
    )
    op.create_table(
        "certificates",
        sa.Column("serial", sa.String(length=48), nullable=False),
        sa.Column("device_id", sa.String(length=64), nullable=False),
        sa.Column("pem", sa.LargeBinary(), nullable=False),
        sa.Column("issued_s", sa.Double(), nullable=False),
        sa.Column("not_after_s", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["device_id"], ["devices.device_id"], name="fk_certificates_device_id_devices"),
        sa.PrimaryKeyConstraint("serial", name="pk_certificates"),
    )
    op.create_index("ix_certificates_device_id", "certificates", ["device_id"], unique=False)
