use idem::prelude::*;

async fn run() -> Result<(), BoxError> {
    let store = Postgres::connect("postgres://localhost/shop").await?;
    drop(store);
    Ok(())
}

fn main() {}
