use idem::prelude::*;

async fn run() -> Result<(), BoxError> {
    let store = Sqlite::connect("sqlite://shop.db").await?;
    drop(store);
    Ok(())
}

fn main() {}
