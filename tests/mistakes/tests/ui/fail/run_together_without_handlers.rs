use idem::Source;
use idem::prelude::*;

async fn run(store: Postgres, source: impl Source) -> Result<(), BoxError> {
    let worker = Worker::new("billing", store, source);
    Workers::new().add(worker).run_until(idem::shutdown_signal()).await?;
    Ok(())
}

fn main() {}
