//! The grammar of the arguments of `#[idempotent(...)]`.

use proc_macro2::{Span, TokenStream, TokenTree};
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream, Parser, Result};
use syn::{Error, Ident, LitStr, Path, Token, bracketed, token};

use crate::key::{Part, key};
use crate::text::text;

const ARGUMENTS: &str = "`key = ..`, `name = \"..\"`, `formerly = \"..\"`, `event = \"..\"`, `call = ..`, `natural`, `best_effort`, `zero_key`, `fingerprint = ..` or `crate = ..`";

const NATURAL_CALL: &str = "a `natural` handler runs for each copy of a message, and would call for each: remove `natural`, or \
                            remove `call`";

const BEST_EFFORT_CALL: &str = "a handler with `best_effort` calls by itself: a call that is made first needs a SQL store. Remove one of \
                                them";

const BEST_EFFORT_NATURAL: &str =
    "a `natural` handler needs no deduplication, and `best_effort` asks for one: remove one of them";

/// The longest name, in bytes.
pub(crate) const MAX_NAME: usize = 200;

/// Parses the arguments one by one, and goes on behind an invalid one, whose error is added to `errors`.
pub(crate) fn each(
    tokens: TokenStream,
    errors: &mut Vec<Error>,
    mut argument: impl FnMut(ParseStream<'_>) -> Result<()>,
) {
    let parser = |input: ParseStream<'_>| {
        while !input.is_empty() {
            if let Err(error) = argument(input) {
                errors.push(error);
                while !input.is_empty() && !input.peek(Token![,]) {
                    input.parse::<TokenTree>()?;
                }
            }
            input.parse::<Option<Token![,]>>()?;
        }
        Ok(())
    };
    // Tokens that an invalid argument leaves unread in its parentheses are not a second error.
    let unread = parser.parse2(tokens).err().filter(|_| errors.is_empty());
    errors.extend(unread);
}

/// The arguments that could be parsed.
#[derive(Default)]
pub(crate) struct Args {
    /// One part, or more than one for a composite key.
    pub(crate) key: Option<Vec<Part>>,
    pub(crate) name: Option<LitStr>,
    /// The names that it had before.
    pub(crate) formerly: Option<Vec<LitStr>>,
    pub(crate) event: Option<LitStr>,
    /// The word itself.
    pub(crate) natural: Option<Ident>,
    /// The word itself: it takes no connection, and its effect is in another system.
    pub(crate) best_effort: Option<Ident>,
    /// The word itself: a key that looks absent, such as 0, is a key.
    pub(crate) zero_key: Option<Ident>,
    /// The external call that is made first.
    pub(crate) call: Option<Path>,
    pub(crate) fingerprint: Option<Path>,
    pub(crate) krate: Option<Path>,
    /// Whether a key is given, valid or not, or may have been meant. Then a second error about the key is not reported.
    keyed: bool,
}

impl Args {
    /// Parses all arguments. Invalid arguments are omitted, and their errors are added to `errors`.
    pub(crate) fn parse(tokens: TokenStream, errors: &mut Vec<Error>) -> Self {
        let mut args = Self::default();
        each(tokens, errors, |input| args.argument(input));
        if let (Some(word), Some(_)) = (&args.natural, &args.call) {
            errors.push(Error::new(word.span(), NATURAL_CALL));
        }
        if let Some(word) = &args.best_effort {
            let call = args.call.as_ref().map(|_| BEST_EFFORT_CALL);
            let natural = args.natural.as_ref().map(|_| BEST_EFFORT_NATURAL);
            errors.extend(call.into_iter().chain(natural).map(|text| Error::new(word.span(), text)));
        }
        if !args.keyed {
            let text = "a handler needs the key of its messages: `#[idempotent(key = \"event_id\")]`";
            errors.push(Error::new(Span::call_site(), text));
        }
        args
    }

    fn argument(&mut self, input: ParseStream<'_>) -> Result<()> {
        if !input.peek(Ident::peek_any) {
            self.keyed = true;
            return Err(input.error(format!("expected {ARGUMENTS}")));
        }
        let word = input.call(Ident::parse_any)?;
        match word.to_string().as_str() {
            "key" => {
                self.keyed = true;
                set(&mut self.key, &word, input, key)
            }
            "name" => set(&mut self.name, &word, input, handler_name),
            "formerly" => set(&mut self.formerly, &word, input, former_names),
            "event" => set(&mut self.event, &word, input, event),
            "natural" => flag(&mut self.natural, &word, input),
            "best_effort" => flag(&mut self.best_effort, &word, input),
            "zero_key" => flag(&mut self.zero_key, &word, input),
            "call" => set(&mut self.call, &word, input, Path::parse_mod_style),
            "fingerprint" => set(&mut self.fingerprint, &word, input, Path::parse),
            "crate" => set(&mut self.krate, &word, input, Path::parse_mod_style),
            other => {
                self.keyed = true;
                Err(Error::new(word.span(), format!("unknown argument `{other}`; expected {ARGUMENTS}")))
            }
        }
    }
}

/// Parses `= value`. The value must be the whole argument and must not be set already.
pub(crate) fn set<T>(
    slot: &mut Option<T>,
    word: &Ident,
    input: ParseStream<'_>,
    value: fn(ParseStream<'_>) -> Result<T>,
) -> Result<()> {
    if !input.peek(Token![=]) {
        return Err(Error::new(word.span(), format!("expected `{word} = ..`")));
    }
    input.parse::<Token![=]>()?;
    let value = value(input)?;
    if !input.is_empty() && !input.peek(Token![,]) {
        return Err(input.error("expected `,`"));
    }
    if slot.replace(value).is_some() {
        return Err(Error::new(word.span(), format!("`{word}` is given twice; keep one")));
    }
    Ok(())
}

/// Parses a word that has no value.
pub(crate) fn flag(slot: &mut Option<Ident>, word: &Ident, input: ParseStream<'_>) -> Result<()> {
    let is_repeated = slot.replace(word.clone()).is_some();
    if !input.is_empty() && !input.peek(Token![,]) {
        return Err(Error::new(word.span(), format!("`{word}` has no value: write `{word}`, or leave it out")));
    }
    if is_repeated {
        return Err(Error::new(word.span(), format!("`{word}` is given twice; keep one")));
    }
    Ok(())
}

fn handler_name(input: ParseStream<'_>) -> Result<LitStr> {
    name(input, "the stored name of the handler as a string: `name = \"order_paid\"`")
}

/// Parses one name, or several in brackets.
fn former_names(input: ParseStream<'_>) -> Result<Vec<LitStr>> {
    let one = |input: ParseStream<'_>| name(input, "the name that the handler had before: `formerly = \"order_paid\"`");
    if !input.peek(token::Bracket) {
        return Ok(vec![one(input)?]);
    }
    let inner;
    bracketed!(inner in input);
    Ok(inner.parse_terminated(one, Token![,])?.into_iter().collect())
}

/// Parses a name that is stored.
pub(crate) fn name(input: ParseStream<'_>, what: &str) -> Result<LitStr> {
    let name = text(input, what)?;
    match name.value() {
        value if value.len() > MAX_NAME => {
            let text = format!("the name has {} bytes; at most {MAX_NAME} are possible", value.len());
            Err(Error::new(name.span(), text))
        }
        value if value.chars().any(char::is_control) => {
            Err(Error::new(name.span(), "a name has no control characters: it is stored as text, and shown"))
        }
        _ => Ok(name),
    }
}

fn event(input: ParseStream<'_>) -> Result<LitStr> {
    text(input, "the type of event as a string: `event = \"order.paid\"`")
}
