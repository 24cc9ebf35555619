use idem::Source;
use idem::prelude::*;

async fn run(store: Postgres, source: impl Source) -> Result<(), BoxError> {
    Worker::new("billing", store, source).concurrency(4).run_until(idem::shutdown_signal()).await?;
    Ok(())
}

fn main() {}
