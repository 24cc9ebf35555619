//! The replies of `axum-idempotent`, which keeps them in sessions: here in PostgreSQL, so that both services have them.

use ruts::Id;
use ruts::store::{Error, SessionMap, SessionStore};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sqlx::postgres::PgPool;

/// The fields of one session, which all clients share.
#[derive(Clone)]
pub(super) struct Sessions(pub(super) PgPool);

/// The parameter of a feature of `ruts` that is not enabled.
type Absent = Option<std::marker::PhantomData<()>>;

fn failed(error: impl ToString) -> Error {
    Error::Backend(error.to_string())
}

/// The middleware calls only `get` and `set`.
fn unused<T>() -> Result<T, Error> {
    Err(failed("not used"))
}

impl SessionStore for Sessions {
    async fn get<T: Send + Sync + DeserializeOwned>(&self, _: &Id, field: &str) -> Result<Option<T>, Error> {
        let find = sqlx::query_scalar::<_, String>("SELECT reply FROM demo.replies WHERE key = $1").bind(field);
        let found = find.fetch_optional(&self.0).await.map_err(failed)?;
        found.map(|text| serde_json::from_str(&text)).transpose().map_err(failed)
    }

    async fn set<T: Send + Sync + Serialize>(
        &self,
        _: &Id,
        field: &str,
        value: &T,
        _: i64,
        life: i64,
        _: Absent,
    ) -> Result<i64, Error> {
        let text = serde_json::to_string(value).map_err(failed)?;
        let keep = sqlx::query("INSERT INTO demo.replies VALUES ($1, $2) ON CONFLICT DO NOTHING");
        keep.bind(field).bind(text).execute(&self.0).await.map_err(failed)?;
        Ok(life)
    }

    async fn get_all(&self, _: &Id) -> Result<Option<SessionMap>, Error> {
        unused()
    }

    async fn set_and_rename<T: Send + Sync + Serialize>(
        &self,
        _: &Id,
        _: &Id,
        _: &str,
        _: &T,
        _: i64,
        _: i64,
        _: Absent,
    ) -> Result<i64, Error> {
        unused()
    }

    async fn rename_session_id(&self, _: &Id, _: &Id) -> Result<bool, Error> {
        unused()
    }

    async fn remove(&self, _: &Id, _: &str) -> Result<i64, Error> {
        unused()
    }

    async fn delete(&self, _: &Id) -> Result<bool, Error> {
        unused()
    }

    async fn expire(&self, _: &Id, _: i64) -> Result<bool, Error> {
        unused()
    }
}
