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
    if let Some(flaw) = flaw(&info) {
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
        let sync: Result<Vec<String>, _> =
            redis::cmd("CONFIG").arg("GET").arg("appendfsync").query_async(&mut redis.connection()).await;
        let sync = sync.ok().and_then(|mut answer| answer.pop());
        warnings(&info, sync.as_deref()).iter().for_each(|text| tracing::warn!(address, "{text}"));
    }
    Ok(())
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
fn flaw(info: &str) -> Option<String> {
    let policy = field(info, "maxmemory_policy").unwrap_or("noeviction");
    if policy != "noeviction" {
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
fn warnings(info: &str, sync: Option<&str>) -> Vec<&'static str> {
    let is_logged = field(info, "aof_enabled") == Some("1");
    let replicas = field(info, "connected_slaves").is_some_and(|number| number != "0");
    let all = [
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

    fn info(policy: &str, cluster: u8, version: &str, aof: u8, replicas: u8) -> String {
        format!(
            "# Server\r\nredis_version:{version}\r\n# Memory\r\nmaxmemory_policy:{policy}\r\naof_enabled:{aof}\r\nrole:master\r\n\
             connected_slaves:{replicas}\r\ncluster_enabled:{cluster}\r\n"
        )
    }

    #[test]
    fn a_server_that_evicts_or_is_a_cluster_or_too_old_is_refused_with_the_fix() {
        for policy in ["allkeys-lru", "volatile-ttl"] {
            assert!(flaw(&info(policy, 0, "7.0.15", 1, 0)).is_some_and(|why| why.contains("noeviction")));
        }
        assert!(flaw(&info("noeviction", 1, "7.0.15", 1, 0)).is_some_and(|why| why.contains("cluster")));
        assert!(flaw(&info("noeviction", 0, "5.0.7", 1, 0)).is_some_and(|why| why.contains("5.0.7")));
        assert_eq!(flaw(&info("noeviction", 0, "7.0.15", 1, 0)), None);
    }

    #[test]
    fn each_setting_that_forgets_is_a_warning() {
        let warned = |aof, replicas, sync| warnings(&info("noeviction", 0, "7.0.15", aof, replicas), sync).len();
        assert_eq!(warned(1, 0, Some("always")), 0);
        assert_eq!((warned(1, 0, Some("everysec")), warned(1, 0, None)), (1, 1));
        assert_eq!((warned(0, 0, Some("always")), warned(0, 2, None)), (1, 2));
    }
}
