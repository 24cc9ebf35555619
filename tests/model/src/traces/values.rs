//! What a line says about its step, beside its name.

/// The values of a line, such as `starts=1 attempts=0`. Those that are absent are not compared.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Values {
    /// The starts of the row after the step.
    pub(crate) starts: Option<u8>,
    /// The attempts of the row after the step.
    pub(crate) attempts: Option<u8>,
    /// The breaks of the row after the step.
    pub(crate) breaks: Option<u8>,
    /// Whether the row is dead after the step.
    pub(crate) dead: Option<bool>,
    /// Whether a delivery must be stored before it runs.
    pub(crate) stores: bool,
    /// The number of the delivery at its process.
    pub(crate) delivery: Option<u64>,
    /// Whether the transaction is that of a row, not of a delivery.
    pub(crate) of_row: Option<bool>,
    /// Whether the run that is recorded lost its connection, and did not fail.
    pub(crate) broke: Option<bool>,
    /// How long the lease of the row lasts from now on, in milliseconds.
    pub(crate) lease: Option<u64>,
    /// The state of the row: none, scheduled or dead.
    pub(crate) row: Option<String>,
    /// The state of the claim: none, undated or dated.
    pub(crate) claim: Option<String>,
    /// The key under which the provider knows the call.
    pub(crate) key: Option<String>,
    /// Whether no call has begun under that key, after the step.
    pub(crate) unused: Option<bool>,
    /// Whether the provider knows keys.
    pub(crate) keyed: Option<bool>,
    /// Whether the provider can be asked what became of a call.
    pub(crate) asks: Option<bool>,
    /// The provider's reply to a question: there, not-there or unknown.
    pub(crate) reply: Option<String>,
    /// How an operator resolved a call: by an answer or by another call.
    pub(crate) by: Option<String>,
    /// The place of a message in its outbox.
    pub(crate) id: Option<i64>,
    /// The key in whose order a message of the outbox leaves.
    pub(crate) order: Option<String>,
}

impl Values {
    /// Reads `name=value` pairs, separated by spaces.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut values = Self::default();
        for pair in text.split(' ').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').ok_or_else(|| format!("{pair:?} is no value"))?;
            values.set(name, value).ok_or_else(|| format!("the value {pair:?} is not known"))?;
        }
        Ok(values)
    }

    fn set(&mut self, name: &str, value: &str) -> Option<()> {
        let number = || value.parse::<u8>().ok();
        let yes = |yes: &str, no: &str| [(yes, true), (no, false)].iter().find(|(of, _)| *of == value).map(|it| it.1);
        match name {
            "starts" => self.starts = Some(number()?),
            "attempts" => self.attempts = Some(number()?),
            "breaks" => self.breaks = Some(number()?),
            "dead" => self.dead = Some(yes("yes", "no")?),
            "stores" => self.stores = yes("yes", "no")?,
            "delivery" => self.delivery = Some(value.parse().ok()?),
            "of" => self.of_row = Some(yes("row", "claim")?),
            "result" => self.broke = Some(yes("broke", "failed")?),
            "lease" => self.lease = Some(value.parse().ok()?),
            "row" => self.row = Some(value.to_owned()),
            "claim" => self.claim = Some(value.to_owned()),
            "key" => self.key = Some(value.to_owned()),
            "unused" => self.unused = Some(yes("yes", "no")?),
            "keyed" => self.keyed = Some(yes("yes", "no")?),
            "asks" => self.asks = Some(yes("yes", "no")?),
            "reply" => self.reply = Some(value.to_owned()),
            "by" => self.by = Some(value.to_owned()),
            "id" => self.id = Some(value.parse().ok()?),
            "order" => self.order = Some(value.to_owned()),
            _ => return None,
        }
        Some(())
    }
}
