//! Queries the brokers with a separate client, which is in no group.

use std::sync::Arc;
use std::time::{Duration, Instant};

use idem_core::Error;
use rdkafka::client::OAuthToken;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::metadata::{Metadata, MetadataTopic};
use rdkafka::{ClientConfig, ClientContext};
use tokio::sync::watch;

use crate::config::Config;
use crate::credentials::Tokens;
use crate::error::{Loss, connecting, no_match, no_topic, setting};
use crate::plan::Known;
use crate::wanted::Wanted;

/// The time limit from the first packet to the answer.
const CONNECT: Duration = Duration::from_secs(10);

/// How long to wait, after all brokers went down, for the reason or for a broker to return.
const REASONS: Duration = Duration::from_secs(1);

/// The time limit of one attempt. It is short, so that a refused login is noticed long before `CONNECT`.
const STEP: Duration = Duration::from_millis(250);

/// How long a named topic may be unknown. A broker learns of a new topic a moment after its creation was confirmed.
const UNKNOWN: Duration = Duration::from_secs(2);

/// Checks that a broker answers and that the login works.
pub(crate) async fn connect(config: &Config) -> Result<(), Error> {
    blocking(config, |config| MetadataClient::new(config)?.ask(Some(NO_TOPIC)).map(drop)).await
}

/// Returns the wanted topics, each with its partitions. Every named topic must exist, and the names and patterns
/// together must match at least one topic.
pub(crate) async fn topics(config: &Config, wanted: &Arc<Wanted>) -> Result<Known, Error> {
    let wanted = Arc::clone(wanted);
    let resolved = move |config: &Config| {
        let client = MetadataClient::new(config)?;
        resolve(config, &wanted, |topic| client.ask_until_known(topic), |_| false)
    };
    blocking(config, resolved).await
}

async fn blocking<T: Send + 'static>(
    config: &Config,
    how: impl FnOnce(&Config) -> Result<T, Loss> + Send + 'static,
) -> Result<T, Error> {
    let config = config.clone();
    match tokio::task::spawn_blocking(move || how(&config)).await {
        Ok(answer) => Ok(answer?),
        // The runtime is shutting down.
        Err(error) => Err(Error::broker("the request to the brokers was cancelled", error)),
    }
}

/// Returns the existing topics among `wanted`. `ask` fetches the metadata of one topic or, with `None`, of all topics.
/// `keeps` says whether a named topic is kept, without its partitions, if the user may not see it; it is an error
/// otherwise.
pub(crate) fn resolve(
    config: &Config,
    wanted: &Wanted,
    ask: impl Fn(Option<&str>) -> Result<Metadata, Loss>,
    keeps: impl Fn(&str) -> bool,
) -> Result<Known, Loss> {
    let mut known = Known::new();
    for name in &wanted.names {
        let metadata = ask(Some(name))?;
        let hidden = metadata.topics().iter().any(is_forbidden) && keeps(name);
        known.insert(Arc::clone(name), if hidden { Vec::new() } else { found(config, name, &metadata)? });
    }
    if wanted.has_patterns() {
        let all = ask(None)?;
        for topic in all.topics().iter().filter(|topic| wanted.matches(topic.name())) {
            if let Ok(partitions) = found(config, topic.name(), &all) {
                known.entry(topic.name().into()).or_insert(partitions);
            }
        }
    }
    if known.is_empty() { Err(no_match(&config.place, &wanted.text)) } else { Ok(known) }
}

/// A client that sends queries and records why they get no answer.
struct MetadataClient<'a> {
    config: &'a Config,
    consumer: BaseConsumer<Witness>,
}

impl<'a> MetadataClient<'a> {
    fn new(config: &'a Config) -> Result<Self, Loss> {
        Ok(Self { config, consumer: client(config, &config.client, Witness::new(config))? })
    }

    fn ask_until_known(&self, topic: Option<&str>) -> Result<Metadata, Loss> {
        let until = Instant::now() + UNKNOWN;
        loop {
            let metadata = self.ask(topic)?;
            let mut errors = metadata.topics().iter().filter_map(|found| found.error().map(Code::from));
            if topic.is_none() || !errors.any(is_unknown) || Instant::now() >= until {
                return Ok(metadata);
            }
            std::thread::sleep(STEP);
        }
    }

    fn ask(&self, topic: Option<&str>) -> Result<Metadata, Loss> {
        let until = Instant::now() + CONNECT;
        loop {
            let error = match self.consumer.fetch_metadata(topic, STEP) {
                Ok(metadata) => return Ok(metadata),
                Err(error) => error,
            };
            let said = listen(&self.consumer);
            // The reason why a broker is down may arrive after that event or never, and one of several brokers may be
            // back at once.
            let down = said.down.is_some_and(|since| since.elapsed() >= REASONS);
            if said.final_word || down || Instant::now() >= until || !waits(&error) {
                let reason = if said.reason.is_empty() { error.to_string() } else { said.reason };
                return Err(connecting(&self.config.place, said.code.or(error.rdkafka_error_code()), reason));
            }
        }
    }
}

/// Polls until there are no more events, because librdkafka reports events only to polls. A poll returns after each
/// event.
fn listen(consumer: &BaseConsumer<Witness>) -> Said {
    loop {
        let before = consumer.context().said();
        if consumer.poll(Duration::ZERO).is_none() && before.events == consumer.context().events() {
            return before;
        }
    }
}

/// The topic in metadata requests that need no topic: without a name, the answer would describe all topics of the
/// cluster. The brokers do not create it.
const NO_TOPIC: &str = "idem";

fn waits(error: &KafkaError) -> bool {
    matches!(error.rdkafka_error_code(), Some(Code::BrokerTransportFailure | Code::OperationTimedOut))
}

/// Whether a topic or a partition does not exist.
pub(crate) fn is_unknown(code: Code) -> bool {
    matches!(code, Code::UnknownTopicOrPartition | Code::UnknownTopic | Code::UnknownPartition)
}

fn is_forbidden(topic: &MetadataTopic) -> bool {
    topic.error().map(Code::from) == Some(Code::TopicAuthorizationFailed)
}

fn found(config: &Config, topic: &str, metadata: &Metadata) -> Result<Vec<i32>, Loss> {
    let Some(found) = metadata.topics().iter().find(|found| found.name() == topic) else {
        return Err(no_topic(&config.place, topic));
    };
    match found.error().map(Code::from) {
        None => Ok(found.partitions().iter().map(|partition| partition.id()).collect()),
        Some(code) if is_unknown(code) => Err(no_topic(&config.place, topic)),
        Some(Code::TopicAuthorizationFailed) => Err(Loss::Refused(format!(
            "the user may not see the topic `{topic}` at {}: allow it to describe and read the topic, for example by \
             `kafka-acls.sh --add --operation Read --topic {topic}`",
            config.place
        ))),
        Some(code) => Err(Loss::Broker(
            format!("cannot read the metadata of topic `{topic}` at {}", config.place),
            code.to_string(),
        )),
    }
}

/// Returns a client that is logged in according to the configuration.
pub(crate) fn client<C: ConsumerContext>(
    config: &Config,
    settings: &ClientConfig,
    context: C,
) -> Result<BaseConsumer<C>, Loss> {
    let consumer: BaseConsumer<C> = settings.create_with_context(context).map_err(|error| setting(&error))?;
    config.tokens.begin(consumer.client(), &config.place)?;
    Ok(consumer)
}

/// Records the events of librdkafka, which say more than its return values.
#[derive(Clone)]
pub(crate) struct Witness {
    said: Arc<watch::Sender<Said>>,
    tokens: Tokens,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Said {
    pub(crate) code: Option<Code>,
    pub(crate) reason: String,
    /// A retry would not help.
    final_word: bool,
    /// The client is of no use any more: it has ended with a fatal error, or the brokers refuse its login.
    pub(crate) ended: bool,
    /// The time since which all brokers have been down.
    down: Option<Instant>,
    events: u64,
}

impl Witness {
    pub(crate) fn new(config: &Config) -> Self {
        Self { said: Arc::default(), tokens: config.tokens.clone() }
    }

    pub(crate) fn said(&self) -> Said {
        self.said.borrow().clone()
    }

    /// Whether the client is of no use any more.
    pub(crate) fn has_ended(&self) -> bool {
        self.said.borrow().ended
    }

    /// Notes that the client is of no use any more.
    pub(crate) fn end(&self) {
        self.said.send_modify(|said| said.ended = true);
    }

    /// Waits for that.
    pub(crate) async fn ended(&self) {
        let mut said = self.said.subscribe();
        let _ = said.wait_for(|said| said.ended).await;
    }

    /// Grows with each event that a poll has served. There is no other sign that another event may be pending.
    pub(crate) fn events(&self) -> u64 {
        self.said.borrow().events
    }

    pub(crate) fn serves(&self) {
        self.said.send_modify(|said| said.events += 1);
    }

    fn hears(&self, error: &KafkaError, reason: &str) {
        let code = error.rdkafka_error_code();
        // If a new token cannot be fetched, the previous one may still be valid. Once it is not, the brokers report that.
        let refused = matches!(code, Some(Code::Authentication | Code::SaslAuthenticationFailed))
            && !reason.contains("Failed to acquire SASL OAUTHBEARER token");
        let first = refused || code == Some(Code::SSL);
        self.said.send_modify(|said| {
            said.events += 1;
            if code == Some(Code::AllBrokersDown) {
                said.down.get_or_insert_with(Instant::now);
            } else if first || !said.final_word {
                (said.code, said.reason) = (code, reason.to_owned());
            }
            said.final_word |= first;
            said.ended |= refused || code == Some(Code::Fatal);
        });
    }
}

impl ClientContext for Witness {
    const ENABLE_REFRESH_OAUTH_TOKEN: bool = true;

    fn generate_oauth_token(&self, _: Option<&str>) -> Result<OAuthToken, Box<dyn std::error::Error>> {
        self.tokens.token().map_err(|error| -> Box<dyn std::error::Error> { error })
    }

    fn log(&self, _: RDKafkaLogLevel, part: &str, text: &str) {
        self.serves();
        tracing::debug!(target: "idem_kafka::librdkafka", part, text);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.hears(&error, reason);
    }
}

impl ConsumerContext for Witness {}
