//! The names and patterns of the topics to consume.

use std::collections::BTreeSet;
use std::sync::Arc;

use idem_core::Error;
use regex::Regex;

/// Topic names and patterns.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    pub(crate) names: Vec<Arc<str>>,
    patterns: Vec<Regex>,
    /// All names and patterns as given, separated by commas.
    pub(crate) text: Arc<str>,
}

/// The prefix of Kafka's internal topics. No pattern matches them.
const INTERNAL: &str = "__";

impl Wanted {
    /// The topic with this name.
    pub(crate) fn one(name: &str) -> Result<Self, Error> {
        if !is_name(name) {
            return Err(Error::Config(
                "a topic's name has 1 to 249 letters, digits, dots, dashes and underscores: give the name of one topic, or \
                 use .topics([..]) for several and for patterns (`^orders\\.`)"
                    .to_owned(),
            ));
        }
        Self::several(&[name.to_owned()])
    }

    /// Topic names, and patterns, which begin with `^`.
    pub(crate) fn several(asked: &[String]) -> Result<Self, Error> {
        let (mut names, mut patterns) = (BTreeSet::new(), Vec::new());
        for one in asked {
            if one.starts_with('^') {
                let unreadable = |error| Error::Config(format!("the pattern {one:?} cannot be read: {error}"));
                patterns.push(Regex::new(one).map_err(unreadable)?);
            } else if is_name(one) {
                names.insert(Arc::from(one.as_str()));
            } else {
                return Err(Error::Config(format!(
                    "{one:?} is neither the name of a topic (1 to 249 letters, digits, dots, dashes and underscores) nor a \
                     pattern, which begins with ^"
                )));
            }
        }
        if names.is_empty() && patterns.is_empty() {
            return Err(Error::Config("no topic was given to .topics([..]): give at least one".to_owned()));
        }
        Ok(Self { names: names.into_iter().collect(), patterns, text: asked.join(",").into() })
    }

    /// Whether topics may be included that do not exist yet.
    pub(crate) fn has_patterns(&self) -> bool {
        !self.patterns.is_empty()
    }

    pub(crate) fn takes(&self, topic: &str) -> bool {
        self.names.iter().any(|name| &**name == topic) || self.matches(topic)
    }

    /// Whether a pattern matches this topic.
    pub(crate) fn matches(&self, topic: &str) -> bool {
        !topic.starts_with(INTERNAL) && self.patterns.iter().any(|pattern| pattern.is_match(topic))
    }
}

/// Whether a topic can have this name.
pub(crate) fn is_name(name: &str) -> bool {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    (1..=249).contains(&name.len()) && name.chars().all(legal) && !matches!(name, "." | "..")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn several(asked: &[&str]) -> Result<Wanted, Error> {
        Wanted::several(&asked.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn names_are_taken_as_they_are_and_patterns_by_what_they_match() {
        let wanted = several(&["orders", "^pay.*s$"]).unwrap();
        for topic in ["orders", "payments", "pays"] {
            assert!(wanted.takes(topic), "{topic}");
        }
        for topic in ["orders2", "xpayments", "payment", "order"] {
            assert!(!wanted.takes(topic), "{topic}");
        }
        assert_eq!(&*wanted.text, "orders,^pay.*s$");
        assert!(wanted.has_patterns() && !several(&["orders", "orders"]).unwrap().has_patterns());
    }

    #[test]
    fn no_pattern_takes_what_kafka_keeps_for_itself() {
        assert!(!several(&["^.*"]).unwrap().takes("__consumer_offsets"));
    }

    #[test]
    fn an_invalid_topic_name_is_refused() {
        for asked in [&["a b"][..], &[""], &["orders", "^("], &["pay*"], &[".."]] {
            let error = several(asked).unwrap_err();
            assert!(matches!(&error, Error::Config(text) if text.contains(&format!("{:?}", asked.last().unwrap()))));
        }
        assert!(several(&[]).unwrap_err().to_string().contains("at least one"));
    }
}
