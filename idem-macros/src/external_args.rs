//! The grammar of the arguments of `#[external(...)]`.

use std::time::Duration;

use proc_macro2::{Span, TokenStream};
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Result};
use syn::{Error, Ident, LitStr, Path};

use crate::args::{each, flag, name, set};
use crate::duration::{Time, time};

const ARGUMENTS: &str = "`key_life = \"24h\"` or `at_most_once`, `timeout = \"20s\"`, `reconcile = ..`, `ask_after = \"2m\"`, \
                         `name = \"..\"` or `crate = ..`";

const NO_KEY_LIFE: &str = "a call needs the time for which the provider remembers a key, `#[external(key_life = \"24h\")]`; if it \
                           knows no keys, `#[external(at_most_once)]`";
const NOBODY: &str = "there is nobody to ask: name the function that does, `reconcile = ..`, or remove `ask_after`";
const BOTH: &str = "a provider that knows no keys remembers none: remove `at_most_once`, or remove `key_life`";

/// The timeout of a call that names none.
const TIMEOUT: Duration = Duration::from_secs(20);

/// How much longer than its timeout a call may be under way, as the worker counts.
const MARGIN: Duration = Duration::from_secs(10);

/// The arguments that could be parsed.
#[derive(Default)]
pub(crate) struct Args {
    pub(crate) key_life: Option<Time>,
    /// The word itself.
    at_most_once: Option<Ident>,
    pub(crate) timeout: Option<Time>,
    pub(crate) reconcile: Option<Path>,
    pub(crate) ask_after: Option<Time>,
    pub(crate) name: Option<LitStr>,
    pub(crate) krate: Option<Path>,
    /// Whether the life of a key is given, valid or not, or may have been meant.
    lived: bool,
}

impl Args {
    /// Parses all arguments. Invalid arguments are omitted, and their errors are added to `errors`.
    pub(crate) fn parse(tokens: TokenStream, errors: &mut Vec<Error>) -> Self {
        let mut args = Self::default();
        each(tokens, errors, |input| args.argument(input));
        args.check(errors);
        args
    }

    fn argument(&mut self, input: ParseStream<'_>) -> Result<()> {
        if !input.peek(Ident::peek_any) {
            self.lived = true;
            return Err(input.error(format!("expected {ARGUMENTS}")));
        }
        let word = input.call(Ident::parse_any)?;
        match word.to_string().as_str() {
            "key_life" => {
                self.lived = true;
                set(&mut self.key_life, &word, input, time)
            }
            "at_most_once" => {
                self.lived = true;
                flag(&mut self.at_most_once, &word, input)
            }
            "timeout" => set(&mut self.timeout, &word, input, time),
            "ask_after" => set(&mut self.ask_after, &word, input, time),
            "name" => set(&mut self.name, &word, input, call_name),
            "reconcile" => set(&mut self.reconcile, &word, input, Path::parse_mod_style),
            "crate" => set(&mut self.krate, &word, input, Path::parse_mod_style),
            other => {
                self.lived = true;
                Err(Error::new(word.span(), format!("unknown argument `{other}`; expected {ARGUMENTS}")))
            }
        }
    }

    /// Returns the life of a key, unless there may be none.
    pub(crate) fn life_of_key(&self) -> Option<&Time> {
        self.key_life.as_ref().filter(|_| self.at_most_once.is_none())
    }

    /// Checks that the arguments go together.
    fn check(&self, errors: &mut Vec<Error>) {
        if !self.lived {
            errors.push(Error::new(Span::call_site(), NO_KEY_LIFE));
        }
        if let (Some(after), None) = (&self.ask_after, &self.reconcile) {
            errors.push(Error::new(after.text.span(), NOBODY));
        }
        if let (Some(word), Some(_)) = (&self.at_most_once, &self.key_life) {
            errors.push(Error::new(word.span(), BOTH));
        }
        let Some(life) = &self.key_life else { return };
        let timeout = self.timeout.as_ref().map_or(TIMEOUT, |timeout| timeout.value);
        if life.value / 10 * 9 < timeout.saturating_add(MARGIN) {
            let text = format!(
                "the provider could forget a key before a call arrives, which may take {timeout:?}, and {MARGIN:?} until it is \
                 sent: that must be less than nine tenths of `key_life`. Lower the timeout, or make it a call without a key, \
                 `at_most_once`"
            );
            errors.push(Error::new(life.text.span(), text));
        }
    }
}

fn call_name(input: ParseStream<'_>) -> Result<LitStr> {
    name(input, "the stored name of the call as a string: `name = \"charge\"`")
}
