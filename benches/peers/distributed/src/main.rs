//! distributed: `commit_batch` with an inbox receipt and the handler's row, which is one transaction for each message.
//!
//! In its favour, we omit its receipt lookup (`inbox_contains`) and its NOTIFY. To its disadvantage, its table needs a
//! primary key and a version; the others do not.

use std::sync::LazyLock;

use anyhow::Result;
use distributed::{
    ColumnType, CommitBatch, ExpectedVersion, InboxReceipt, PostgresRepository, PrimaryKey, RowKey, RowValue,
    RowValues, RowWriteMode, TableColumn, TableKind, TableMutation, TableRowMutation, TableSchema, TableWritePlan,
    TransactionalCommit,
};
use peer_load::{Load, OrderPaid};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

#[tokio::main]
async fn main() -> Result<()> {
    let load = Load::from_args()?;
    let lanes = load.lanes as u32;
    let options: PgConnectOptions = load.url.parse()?;
    let pool = PgPoolOptions::new().min_connections(lanes).max_connections(lanes).test_before_acquire(false);
    let pool = pool.connect_with(options.options([("search_path", "idem_bench_peer")])).await?;
    sqlx::raw_sql("CREATE SCHEMA IF NOT EXISTS idem_bench_peer").execute(&pool).await?;
    let repository = PostgresRepository::new(pool.clone()).without_read_model_change_notify();
    repository.migrate().await?;
    let table = "CREATE TABLE IF NOT EXISTS paid (event_id text PRIMARY KEY, order_id bigint NOT NULL,
        amount bigint NOT NULL, _sourced_version bigint NOT NULL)";
    sqlx::raw_sql(table).execute(&pool).await?;
    let clock = load.run(move |payload| process(repository.clone(), payload)).await?;
    clock.print(sqlx::query_scalar("SELECT count(*) FROM paid").fetch_one(&pool).await?)
}

async fn process(repository: PostgresRepository, payload: Vec<u8>) -> Result<()> {
    let event: OrderPaid = serde_json::from_slice(&payload)?;
    let id = event.event_id.to_string();
    let mut values = RowValues::new();
    values.insert("event_id", RowValue::String(id.clone()));
    values.insert("order_id", RowValue::I64(event.order_id));
    values.insert("amount", RowValue::I64(event.amount));
    let row = TableRowMutation {
        schema: &PAID,
        key: RowKey::new([("event_id", RowValue::String(id.clone()))]),
        values,
        expected_version: ExpectedVersion::Any,
        mode: RowWriteMode::Insert,
    };
    let mut batch = CommitBatch::empty();
    batch.read_model_plans.push(TableWritePlan::new(vec![TableMutation::UpsertRow(row)]));
    batch.inbox_receipts.push(InboxReceipt::new("bench", id));
    repository.commit_batch(batch).await?;
    Ok(())
}

static PAID: LazyLock<TableSchema> = LazyLock::new(|| {
    let column = |name: &str, kind| TableColumn::new(name, name, kind);
    let mut key = column("event_id", ColumnType::Text);
    key.primary_key = true;
    TableSchema {
        model_name: "Paid".into(),
        table_name: "paid".into(),
        columns: vec![key, column("order_id", ColumnType::Integer), column("amount", ColumnType::Integer)],
        primary_key: PrimaryKey::new(["event_id"]),
        version_column: Some("_sourced_version".into()),
        foreign_keys: vec![],
        indexes: vec![],
        relationships: vec![],
        kind: TableKind::ReadModel,
    }
});
