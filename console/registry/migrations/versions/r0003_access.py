"""Users, sessions, quotas and usage; the audit log chained and searchable."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from console.registry import chain
from console.registry.records import AuditEntry

revision = "r0003"
down_revision = "r0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables; number and chain the entries that are there."""
    op.create_table(
        "users",
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("password_hash", sa.String(length=200), nullable=True),
        sa.Column("created_s", sa.Double(), nullable=False),
        sa.Column("disabled_s", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("name", name="pk_users"),
    )
    op.create_table(
        "sessions",
        sa.Column("session_id", sa.String(length=32), nullable=False),
        sa.Column("token_sha256", sa.LargeBinary(length=32), nullable=False),
        sa.Column("user_name", sa.String(length=64), nullable=False),
        sa.Column("created_s", sa.Double(), nullable=False),
        sa.Column("expires_s", sa.Double(), nullable=False),
        sa.Column("source", sa.String(length=200), nullable=False),
        sa.ForeignKeyConstraint(["user_name"], ["users.name"], name="fk_sessions_user_name_users"),
        sa.PrimaryKeyConstraint("session_id", name="pk_sessions"),
    )
    op.create_index("ix_sessions_user_name", "sessions", ["user_name"], unique=False)
    op.create_table(
        "usage",
        sa.Column("key_id", sa.String(length=80), nullable=False),
        sa.Column("day", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("tokens", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("key_id", "day", name="pk_usage"),
    )
    with op.batch_alter_table("api_keys") as keys:
        keys.add_column(sa.Column("user_name", sa.String(length=64), nullable=True))
        keys.add_column(sa.Column("streams", sa.Integer(), nullable=True))
        keys.add_column(sa.Column("tokens_per_day", sa.BigInteger(), nullable=True))
        keys.add_column(sa.Column("models", sa.JSON(), nullable=False, server_default="[]"))
        keys.create_foreign_key("fk_api_keys_user_name_users", "users", ["user_name"], ["name"])
        keys.create_index("ix_api_keys_user_name", ["user_name"], unique=False)
    with op.batch_alter_table("api_keys") as keys:
        keys.alter_column("models", server_default=None)
    _chain_audit()


def _chain_audit() -> None:
    op.create_table(
        "audit_head",
        sa.Column("name", sa.String(length=8), nullable=False),
        sa.Column("sequence", sa.Integer(), nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_audit_head"),
    )
    with op.batch_alter_table("audit") as audit:
        audit.add_column(sa.Column("hash", sa.String(length=64), nullable=False, server_default=""))
    with op.batch_alter_table("audit") as audit:
        audit.alter_column("hash", server_default=None)
    # Only now: SQLite alters a table by replacing it, which rows that refer to it would forbid.
    op.create_table(
        "audit_words",
        sa.Column("word", sa.LargeBinary(length=64), nullable=False),
        sa.Column("sequence", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["sequence"], ["audit.sequence"], name="fk_audit_words_sequence_audit"),
        sa.PrimaryKeyConstraint("word", "sequence", name="pk_audit_words"),
    )
    connection = op.get_bind()
    table = sa.Table("audit", sa.MetaData(), autoload_with=connection)
    table.c.detail.type = sa.JSON()
    words = sa.table("audit_words", sa.column("word", sa.LargeBinary), sa.column("sequence", sa.Integer))
    sequence, last_hash = 0, chain.FIRST_HASH
    # Numbers may have had gaps, left by transactions that were rolled back.
    for row in connection.execute(sa.select(table).order_by(table.c.sequence)).mappings().all():
        sequence += 1
        entry = AuditEntry(
            sequence, row["at_s"], row["actor"], row["action"], row["target"], row["source"], row["detail"]
        )
        last_hash = chain.entry_hash(last_hash, entry)
        change = sa.update(table).where(table.c.sequence == row["sequence"])
        connection.execute(change.values(sequence=sequence, hash=last_hash))
        connection.execute(sa.insert(words), [{"word": word, "sequence": sequence} for word in chain.words_of(entry)])
    head = sa.table("audit_head", sa.column("name"), sa.column("sequence"), sa.column("hash"))
    connection.execute(sa.insert(head).values(name="head", sequence=sequence, hash=last_hash))
