//! The settings of the server that would lose records.

use std::sync::atomic::Ordering::Relaxed;

use idem_core::Error;
use redis::RedisResult;

use crate::Redis;
use crate::script::SCRIPTS;
use crate::steps::DEAD;

/// The oldest version whose scripts may read the time and write.
const OLDEST: u32 = 6;

/// Checks the settings of the server, from INFO: managed servers forbid CONFIG.
///
/// # Errors
/// [`Error::Config`] if it would lose records; otherwise it does not answer, or is a replica.
pub(crate) async fn check(redis: &Redis) -> Result<(), Error> {
    let address = &redis.shared.address;
    let info = match ask(redis).await {
        Ok(info) if !is_replica(&info) => info,
        _ => {
            redis.open_another().await?;
            let answer = ask(redis).await;
            answer.map_err(|error| Error::database(format!("Redis at {address} does not say its settings"), error))?
        }
    };
    // Without the field a missing answer is no permission.
    let policy = match field(&info, "maxmemory_policy") {
        Some(policy) => Some(policy.to_owned()),
        None => setting(redis, "maxmemory-policy").await,
    };
    if let Some(flaw) = flaw(&info, policy.as_deref()) {
        return Err(Error::Config(format!("Redis at {address} {flaw}")));
    }
    if is_replica(&info) {
        let replica = "it is a replica, perhaps since a failover, and takes no writes";
        return Err(Error::database(format!("Redis at {address} cannot be written to"), replica));
    }
    if let Some(lacking) = lacking(redis).await {
        return Err(Error::Config(format!(
            "Redis at {address} forbids this login commands of the steps: add `{lacking}` by ACL SETUSER, with the keys `~idem:*`. A step \
             without one could be done in part"
        )));
    }
    if !redis.shared.warned.swap(true, Relaxed) {
        let sync = setting(redis, "appendfsync").await;
        warnings(&info, policy.as_deref(), sync.as_deref()).iter().for_each(|text| tracing::warn!(address, "{text}"));
    }
    Ok(())
}

/// Returns a setting, if the server tells it.
async fn setting(redis: &Redis, name: &str) -> Option<String> {
    let asked = redis::cmd("CONFIG").arg("GET").arg(name).query_async::<Vec<String>>(&mut redis.connection()).await;
    asked.ok()?.pop()
}

async fn ask(redis: &Redis) -> RedisResult<String> {
    redis::cmd("INFO").query_async(&mut redis.connection()).await
}

/// Returns the commands that the login lacks. `None` if it has all, or it cannot be said now: then a step says it.
async fn lacking(redis: &Redis) -> Option<String> {
    let asked = SCRIPTS.lacking.key(DEAD).invoke_async::<Vec<String>>(&mut redis.connection()).await;
    match asked {
        Ok(lacking) => (!lacking.is_empty()).then(|| lacking.join(" ")),
        Err(error) => (error.code() == Some("NOPERM")).then(|| "+evalsha +script|load".to_owned()),
    }
}

fn is_replica(info: &str) -> bool {
    field(info, "role") == Some("slave")
}

/// Returns the value of a field of INFO.
fn field<'i>(info: &'i str, name: &str) -> Option<&'i str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

/// Returns the setting with which it would lose records, and the fix.
fn flaw(info: &str, policy: Option<&str>) -> Option<String> {
    if field(info, "redis_mode") == Some("sentinel") {
        let why = "is a sentinel, and a failover forgets records. Give the URL of one server";
        return Some(why.to_owned());
    }
    if let Some(policy) = policy.filter(|policy| *policy != "noeviction") {
        return Some(format!(
            "has `maxmemory-policy {policy}`: it may evict the records of processed messages, which would run again. Set `maxmemory-policy \
             noeviction`, and give a cache a server of its own"
        ));
    }
    if field(info, "cluster_enabled") == Some("1") {
        let why = "is a cluster: the keys that a handler writes and the record of its message must be on one node. Use a single server";
        return Some(why.to_owned());
    }
    let version = field(info, "redis_version")?;
    let major = version.split('.').next()?.parse::<u32>().ok()?;
    (major < OLDEST).then(|| format!("has version {version}: use version {OLDEST} or newer"))
}

/// Returns what it may forget.
fn warnings(info: &str, policy: Option<&str>, sync: Option<&str>) -> Vec<&'static str> {
    let is_logged = field(info, "aof_enabled") == Some("1");
    let replicas = field(info, "connected_slaves").is_some_and(|number| number != "0");
    let all = [
        (
            policy.is_none(),
            "Redis does not say its `maxmemory-policy`: any but `noeviction` may evict the records of processed messages, which would run \
             again. Check it, or permit `+config|get`",
        ),
        (
            !is_logged,
            "Redis has `appendonly no`: a restart forgets records, and their messages run again if they are delivered again. Set \
             `appendonly yes`",
        ),
        (
            is_logged && sync != Some("always"),
            "Redis does not say that it has `appendfsync always`: a crash of its machine may forget the last second of acked messages, \
             with what their handlers wrote",
        ),
        (replicas, "Redis has replicas: a failover forgets what they had not received, of acked messages too"),
    ];
    all.into_iter().filter(|(applies, _)| *applies).map(|(_, text)| text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(cluster: u8, version: &str, aof: u8, replicas: u8) -> String {
        format!(
            "# Server\r\nredis_version:{version}\r\n# Memory\r\naof_enabled:{aof}\r\nrole:master\r\n\
             connected_slaves:{replicas}\r\ncluster_enabled:{cluster}\r\n"
        )
    }

    #[test]
    fn a_server_that_evicts_or_is_a_cluster_or_too_old_is_refused_with_the_fix() {
        for policy in ["allkeys-lru", "volatile-ttl"] {
            assert!(flaw(&info(0, "7.0.15", 1, 0), Some(policy)).is_some_and(|why| why.contains("noeviction")));
        }
        assert!(flaw(&info(1, "7.0.15", 1, 0), None).is_some_and(|why| why.contains("cluster")));
        assert!(flaw(&info(0, "5.0.7", 1, 0), None).is_some_and(|why| why.contains("5.0.7")));
        assert_eq!(flaw(&info(0, "7.0.15", 1, 0), Some("noeviction")), None);
        let sentinel = flaw("redis_version:7.0.15\r\nredis_mode:sentinel\r\n", None);
        assert!(sentinel.is_some_and(|why| why.contains("sentinel")));
    }

    #[test]
    fn each_setting_that_forgets_is_a_warning() {
        let policy = Some("noeviction");
        let warned = |aof, replicas, sync| warnings(&info(0, "7.0.15", aof, replicas), policy, sync).len();
        assert_eq!(warnings(&info(0, "7.0.15", 1, 0), None, Some("always")).len(), 1);
        assert_eq!(warned(1, 0, Some("always")), 0);
        assert_eq!((warned(1, 0, Some("everysec")), warned(1, 0, None)), (1, 1));
        assert_eq!((warned(0, 0, Some("always")), warned(0, 2, None)), (1, 2));
    }
}
