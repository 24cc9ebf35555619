//! Times among the arguments.

use std::time::Duration;

use syn::parse::{ParseStream, Result};
use syn::{Error, LitStr};

use crate::text::text;

/// The units, and how many milliseconds each has.
const UNITS: [(&str, u64); 5] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// A time, and the string in which it stands.
pub(crate) struct Time {
    pub(crate) value: Duration,
    pub(crate) text: LitStr,
}

/// Parses a time that is longer than zero: `"24h"`.
pub(crate) fn time(input: ParseStream<'_>) -> Result<Time> {
    const WHAT: &str = "a time as a string: a number and one of `ms`, `s`, `m`, `h`, `d`, as in `\"24h\"`";
    let text = text(input, WHAT)?;
    let written = text.value();
    let digits = written.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = written.split_at(digits);
    let factor = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor);
    let millis = number.parse::<u64>().ok().zip(factor).and_then(|(number, factor)| number.checked_mul(factor));
    match millis {
        None => Err(Error::new(text.span(), format!("`{written}` is no time; expected {WHAT}"))),
        Some(0) => Err(Error::new(text.span(), "a time must be longer than zero")),
        Some(millis) => Ok(Time { value: Duration::from_millis(millis), text }),
    }
}
