//! The generated code: names, types, and one call per item.

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Error, Ident, Index, LitStr, Path, Type};

use crate::args::{Args, MAX_NAME};
use crate::header::{Header, Shape};
use crate::key::Part;
use crate::types::{is_called, is_option};

const CALLED_ALONE: &str =
    "`Called` is the answer of an external call: name the call, `#[idempotent(.., call = charge)]`";
const CALLED_TWICE: &str = "a handler makes one call, so it takes one `Called`";
const CALL_OF_BATCH: &str = "a call is made for one message: take one message instead of a `Batch`";

/// Returns the unchanged function and a type of the same name that implements `Handler`.
///
/// Both are generated despite any error, so that an error is reported only at its cause and not again at each use of
/// the handler.
pub(crate) fn idempotent(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let Ok(header) = syn::parse2::<Header>(item.clone()) else {
        let error = Error::new(Span::call_site(), "`#[idempotent]` goes on an `async fn`").into_compile_error();
        return quote!(#item #error);
    };
    let mut errors = Vec::new();
    let args = Args::parse(arguments, &mut errors);
    let shape =
        header.shape(args.best_effort.is_some(), &mut errors).filter(|shape| call_fits(&args, shape, &mut errors));
    let name = name(&args, &header.sig.ident, &mut errors);
    let handler = Handler { args: &args, header: &header, shape: shape.as_ref() };
    let handler = (!header.is_method()).then(|| handler.expand(&name));
    let errors = errors.into_iter().map(Error::into_compile_error);
    quote!(#item #handler #(#errors)*)
}

/// Checks that the parameters of a handler go with its call, or with having none.
fn call_fits(args: &Args, shape: &Shape, errors: &mut Vec<Error>) -> bool {
    let before = errors.len();
    let called: Vec<&Type> = shape.params.iter().filter(|ty| is_called(ty)).collect();
    match &args.call {
        None => errors.extend(called.iter().map(|ty| Error::new_spanned(ty, CALLED_ALONE))),
        Some(path) if shape.is_batch => errors.push(Error::new_spanned(path, CALL_OF_BATCH)),
        Some(_) => errors.extend(called.iter().skip(1).map(|ty| Error::new_spanned(ty, CALLED_TWICE))),
    }
    errors.len() == before
}

/// Returns the name of the handler; the default is the function's name.
fn name(args: &Args, function: &Ident, errors: &mut Vec<Error>) -> String {
    let name = args.name.as_ref().map_or_else(|| function.unraw().to_string(), LitStr::value);
    if args.name.is_none() && name.len() > MAX_NAME {
        let text = format!("the name is stored, in at most {MAX_NAME} bytes: give a shorter one with `name = \"..\"`");
        errors.push(Error::new_spanned(function, text));
    }
    name
}

struct Handler<'a> {
    args: &'a Args,
    header: &'a Header,
    /// `None` if the header has an error.
    shape: Option<&'a Shape>,
}

impl Handler<'_> {
    fn expand(&self, name: &str) -> TokenStream {
        let idem = self.idem(Span::call_site());
        let Header { attrs, vis, sig } = self.header;
        // With the function's span, rustc would report an unregistered handler twice.
        let mut handler = sig.ident.clone();
        handler.set_span(at(handler.span()));
        let deprecated = attrs.iter().find(|attr| attr.path().is_ident("deprecated"));
        let deprecated = deprecated.map(|_| quote!(#[allow(deprecated)]));
        let [message, params, tx, delivery] = ["__message", "__params", "__tx", "__delivery"].map(local);
        let event = self.args.event.iter();
        let formerly = self
            .args
            .formerly
            .iter()
            .map(|names| quote!(const FORMERLY: &'static [&'static #idem::str] = &[#(#names),*];));
        let takes_none = self.shape.is_some_and(|shape| is_option(&shape.message));
        let tombstones = takes_none.then(|| quote!(const TOMBSTONES: #idem::bool = true;));
        let natural = self.args.natural.as_ref().map(|_| quote!(const NATURAL: #idem::bool = true;));
        let needs = self.needs();
        let (types, key, fingerprint, call) = (self.types(), self.key(), self.fingerprint(), self.call());
        quote! {
            #[doc(hidden)]
            #vis struct #handler {}

            #[automatically_derived]
            #deprecated
            impl #idem::Handler for #handler {
                const NAME: &'static #idem::str = #name;
                #(#formerly)*
                #(const EVENT: #idem::Option<&'static #idem::str> = #idem::Option::Some(#event);)*
                #tombstones
                #natural
                #needs
                #types
                fn key(#message: &Self::Message, #delivery: &#idem::Delivery)
                    -> #idem::Result<#idem::Key, #idem::KeyError>
                {
                    #key
                }
                #fingerprint
                async fn handle(#message: Self::Input, #params: Self::Params, #tx: &mut Self::Connection)
                    -> #idem::Result<(), #idem::BoxError>
                {
                    #call
                }
            }
        }
    }

    /// Generates the constants for the parts of the key that a broker may not provide.
    fn needs(&self) -> TokenStream {
        let idem = self.idem(Span::call_site());
        let needs = [
            ("position", "NEEDS_POSITION"),
            ("partition_key", "NEEDS_PARTITION_KEY"),
            ("cloud_event_id", "NEEDS_CLOUD_EVENT"),
        ]
        .map(|(fact, name)| {
            let is_fact = |part: &Part| matches!(part, Part::Fact(word, None) if word == fact);
            let name = Ident::new(name, Span::call_site());
            let needs = self.args.key.iter().flatten().any(is_fact);
            needs.then(|| quote!(const #name: #idem::bool = true;))
        });
        quote!(#(#needs)*)
    }

    fn types(&self) -> TokenStream {
        let Some(shape) = self.shape else {
            let idem = self.idem(Span::call_site());
            return quote!(type Message = #idem::Unknown; type Input = #idem::Unknown; type Params = (); type Connection = #idem::Unknown;);
        };
        let Shape { message, input, params, connection, .. } = shape;
        // An error about a private type in a public handler, or about a type that is not an extractor, points to the
        // type.
        let message = quote_spanned!(at(message.span())=> type Message = #message;);
        let input = quote_spanned!(at(input.span())=> type Input = #input;);
        let place = match &params[..] {
            [only] => only.span(),
            _ => self.header.sig.paren_token.span.join(),
        };
        let params = params.iter().filter(|ty| !is_called(ty));
        let call = self.args.call.iter().map(|path| {
            let (place, message) = (at(path.span()), &shape.message);
            let idem = self.idem(place);
            quote_spanned!(place=> #idem::CalledBy<#path, #message>)
        });
        let params = quote_spanned!(at(place)=> (#(#params,)* #(#call,)*));
        let connection = match connection {
            Some(connection) => quote!(#connection),
            None => {
                let idem = self.idem(Span::call_site());
                quote!(#idem::BestEffort)
            }
        };
        quote!(#message #input type Params = #params; type Connection = #connection;)
    }

    fn key(&self) -> TokenStream {
        let (Some(parts), Some(_)) = (&self.args.key, self.shape) else { return self.stub() };
        let place = if let [one] = &parts[..] { one.span() } else { Span::call_site() };
        let idem = self.idem(place);
        let values = parts.iter().map(|part| match part {
            Part::Field(members, span) => {
                let message = moved(&local("__message"), *span);
                quote_spanned!(at(*span)=> &#message #(.#members)*)
            }
            Part::Fact(word, name) => {
                let (fact, delivery, name) = (moved(word, at(word.span())), local("__delivery"), name.iter());
                quote_spanned!(at(word.span())=> &#idem::#fact(#delivery #(, #name)*))
            }
        });
        let (key, check) = match parts.len() {
            1 => (quote_spanned!(at(place)=> #idem::Key::of(#(#values)*)), quote!(present)),
            _ => (quote!(#idem::Key::composite(&[#(#values),*])), quote!(all_present)),
        };
        if self.args.zero_key.is_some() { key } else { quote!(#idem::#check(#key)) }
    }

    fn fingerprint(&self) -> Option<TokenStream> {
        let path = self.args.fingerprint.as_ref()?;
        let (idem, delivery) = (self.idem(Span::call_site()), local("__delivery"));
        let call = quote_spanned!(at(path.span())=> #path(#delivery));
        // Without its modules, so that another import is not another recipe.
        let recipe = path.segments.last().map(|segment| segment.ident.to_string()).unwrap_or_default();
        Some(quote! {
            const RECIPE: &'static #idem::str = #recipe;
            fn fingerprint(#delivery: &#idem::Delivery) -> #idem::Fingerprint { #call }
        })
    }

    /// Generates the call of the user's function, with the arguments in its order. An error about the return type
    /// points to the return type.
    fn call(&self) -> TokenStream {
        let Some(shape) = self.shape else { return self.stub() };
        let [message, params, tx] = ["__message", "__params", "__tx"].map(local);
        let mut arguments = vec![quote!(#message)];
        // The answer of the call is the last one.
        let last = Index::from(shape.params.iter().filter(|ty| !is_called(ty)).count());
        let mut next = (0..).map(Index::from);
        arguments.extend(shape.params.iter().filter_map(|ty| match is_called(ty) {
            true => Some(quote_spanned!(at(ty.span())=> #params.#last.into_called())),
            false => next.next().map(|index| quote!(#params.#index)),
        }));
        if let Some(at) = shape.connection_at {
            arguments.insert(at, quote!(#tx));
        }
        let place = at(shape.output.span());
        let (idem, function) = (self.idem(place), moved(&self.header.sig.ident, place));
        quote_spanned!(place=> #idem::finish(#function(#(#arguments),*).await))
    }

    fn stub(&self) -> TokenStream {
        let idem = self.idem(Span::call_site());
        quote!(#idem::stub())
    }

    /// The path of the items that the expansion uses, resolved as if written at `place`.
    fn idem(&self, place: Span) -> TokenStream {
        idem(self.args.krate.as_ref(), place)
    }
}

/// Returns the path of the items that an expansion uses, resolved as if written at `place`.
pub(crate) fn idem(krate: Option<&Path>, place: Span) -> TokenStream {
    let path = match krate {
        Some(path) => quote!(#path::__private),
        None => quote!(::idem::__private),
    };
    let placed = path.into_iter().map(|mut token| {
        token.set_span(token.span().located_at(place));
        token
    });
    placed.collect()
}

/// Returns a name that neither shadows a name of the user nor is shadowed by one, such as a constant called `tx`.
pub(crate) fn local(name: &str) -> Ident {
    Ident::new(name, Span::mixed_site())
}

/// Returns this span, resolved at the attribute: tokens from a user's `macro_rules` have their own context, and with a
/// span of user code lints would check generated code.
pub(crate) fn at(place: Span) -> Span {
    Span::call_site().located_at(place)
}

/// Returns this name with another span, resolved as before.
pub(crate) fn moved(name: &Ident, place: Span) -> Ident {
    let mut name = name.clone();
    name.set_span(name.span().located_at(place));
    name
}
