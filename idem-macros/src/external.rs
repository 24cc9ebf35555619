//! The code that `#[external]` generates: names, types, and one call per item.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Error, FnArg, GenericParam, Ident, Index, LitStr, Path, ReturnType, Type};

use crate::duration::Time;
use crate::expand::{at, idem, local, moved};
use crate::external_args::Args;
use crate::header::{Header, MAX_PARAMS};
use crate::types::{exclusive, is_keyless, owned, shared};

const USAGE: &str = "`async fn charge(message: &M, key: OutboundKey) -> Result<T, CallError>`";
const BY_REFERENCE: &str = "a call takes the message by reference, because it may be repeated: `message: &M`";
const NO_TRANSACTION: &str = "a call has no transaction: write its answer in the handler that makes it";
const METHOD: &str = "a call is a free function: move it out of the `impl` block, and take `State<T>` for `self`";
const GENERIC: &str = "a call has no type parameters: name the types";
const NO_KEY: &str = "the provider recognizes a repeated call only by a key that the call sends: take `key: OutboundKey`; or make it \
                      a call without a key, `at_most_once`";

/// The types of a call.
struct Shape {
    message: Type,
    params: Vec<Type>,
    output: Type,
}

/// Returns the unchanged function and a type of the same name that implements `External`. Both are generated despite any
/// error, so that an error is reported only at its cause.
pub(crate) fn external(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let Ok(header) = syn::parse2::<Header>(item.clone()) else {
        let error = Error::new(Span::call_site(), "`#[external]` goes on an `async fn`").into_compile_error();
        return quote!(#item #error);
    };
    let mut errors = Vec::new();
    let args = Args::parse(arguments, &mut errors);
    let shape = shape(&header, &mut errors);
    if let (Some(life), Some(shape)) = (args.life_of_key(), &shape)
        && shape.params.iter().all(is_keyless)
    {
        errors.push(Error::new(life.text.span(), NO_KEY));
    }
    let call = (!header.is_method()).then(|| expand(&args, &header, shape.as_ref()));
    let errors = errors.into_iter().map(Error::into_compile_error);
    quote!(#item #call #(#errors)*)
}

/// Returns the types by their role; `None` if the header is not that of a call. The reasons are added to `errors`.
fn shape(header: &Header, errors: &mut Vec<Error>) -> Option<Shape> {
    let before = errors.len();
    let sig = &header.sig;
    let mut refuse = |tokens: &dyn ToTokens, text: &str| errors.push(Error::new_spanned(tokens, text));
    if sig.asyncness.is_none() {
        refuse(&sig.fn_token, &format!("a call is async: {USAGE}"));
    }
    if let Some(receiver) = sig.receiver() {
        refuse(receiver, METHOD);
    }
    for param in sig.generics.params.iter().filter(|param| !matches!(param, GenericParam::Lifetime(_))) {
        refuse(param, GENERIC);
    }
    if matches!(sig.output, ReturnType::Default) {
        refuse(&sig.ident, &format!("a call returns its answer: {USAGE}"));
    }
    let mut types = sig.inputs.iter().filter_map(|input| match input {
        FnArg::Typed(typed) => Some(&*typed.ty),
        FnArg::Receiver(_) => None,
    });
    let first = types.next();
    let message = match first.map(|ty| (ty, shared(ty))) {
        Some((_, Some(message))) => owned(message, "the message", errors),
        Some((ty, None)) => {
            errors.push(Error::new_spanned(ty, BY_REFERENCE));
            None
        }
        None => {
            errors.push(Error::new(sig.paren_token.span.join(), format!("a call takes a message: {USAGE}")));
            None
        }
    };
    let mut params = Vec::new();
    for ty in types {
        match exclusive(ty) {
            Some(_) => errors.push(Error::new_spanned(ty, NO_TRANSACTION)),
            None => params.extend(owned(ty, "an extractor", errors)),
        }
    }
    if let Some(seventh) = params.get(MAX_PARAMS) {
        let text = format!("a call has at most {MAX_PARAMS} extractors; take one `State<T>` with more in it");
        errors.push(Error::new_spanned(seventh, text));
    }
    let ReturnType::Type(_, output) = &sig.output else { return None };
    let shape = Shape { message: message?, params, output: Type::clone(output) };
    (errors.len() == before).then_some(shape)
}

fn expand(args: &Args, header: &Header, shape: Option<&Shape>) -> TokenStream {
    let path = |place: Span| idem(args.krate.as_ref(), place);
    let idem = path(Span::call_site());
    let Header { attrs, vis, sig } = header;
    let mut call = sig.ident.clone();
    call.set_span(at(call.span()));
    let deprecated = attrs.iter().find(|attr| attr.path().is_ident("deprecated"));
    let deprecated = deprecated.map(|_| quote!(#[allow(deprecated)]));
    let name = args.name.as_ref().map_or_else(|| sig.ident.unraw().to_string(), LitStr::value);
    let [message, params] = ["__message", "__params"].map(local);
    let key_life = key_life(args, &idem);
    let timeout = args.timeout.iter().map(|timeout| millis(timeout, &idem));
    let ask_after = args.ask_after.iter().map(|after| millis(after, &idem));
    let Some(shape) = shape else {
        return quote! {
            #[doc(hidden)]
            #vis struct #call {}

            #[automatically_derived]
            impl #idem::External for #call {
                const NAME: &'static #idem::str = #name;
                const KEY_LIFE: #idem::Option<#idem::Duration> = #key_life;
                type Message = #idem::Unknown;
                type Params = ();
                type Answer = #idem::Unknown;
                async fn call(_: &Self::Message, _: Self::Params) -> #idem::Result<Self::Answer, #idem::CallError> {
                    #idem::stub()
                }
            }
        };
    };
    let types = types(shape, header, &path);
    let place = at(shape.output.span());
    let (placed, function) = (path(place), moved(&sig.ident, place));
    let arguments = arguments(shape, &message, &params);
    let made = quote_spanned!(place=> #placed::answered(#function(#arguments).await));
    let reconcile = args.reconcile.as_ref().map(|function| reconcile(function, shape, &path));
    quote! {
        #[doc(hidden)]
        #vis struct #call {}

        #[automatically_derived]
        #deprecated
        impl #idem::External for #call {
            const NAME: &'static #idem::str = #name;
            const KEY_LIFE: #idem::Option<#idem::Duration> = #key_life;
            #(const TIMEOUT: #idem::Duration = #timeout;)*
            #(const ASK_AFTER: #idem::Duration = #ask_after;)*
            #types
            async fn call(#message: &Self::Message, #params: Self::Params)
                -> #idem::Result<Self::Answer, #idem::CallError>
            {
                #made
            }
            #reconcile
        }
    }
}

fn types(shape: &Shape, header: &Header, path: &dyn Fn(Span) -> TokenStream) -> TokenStream {
    let Shape { message, params, output } = shape;
    let message = quote_spanned!(at(message.span())=> type Message = #message;);
    let place = match &params[..] {
        [only] => only.span(),
        _ => header.sig.paren_token.span.join(),
    };
    let params = quote_spanned!(at(place)=> type Params = (#(#params,)*););
    let place = at(output.span());
    let idem = path(place);
    let answer = quote_spanned!(place=> type Answer = <#output as #idem::Answered>::Answer;);
    quote!(#message #params #answer)
}

/// Generates the question what became of a call, to a function with the same parameters as the call.
fn reconcile(function: &Path, shape: &Shape, path: &dyn Fn(Span) -> TokenStream) -> TokenStream {
    let place = at(function.span());
    let (idem, placed) = (path(Span::call_site()), path(place));
    let [message, params] = ["__message", "__params"].map(local);
    let arguments = arguments(shape, &message, &params);
    let asked = quote_spanned!(place=> #placed::found(#function(#arguments).await));
    quote! {
        const RECONCILES: #idem::bool = true;
        async fn reconcile(#message: &Self::Message, #params: Self::Params)
            -> #idem::Result<#idem::Found<Self::Answer>, #idem::BoxError>
        {
            #asked
        }
    }
}

fn arguments(shape: &Shape, message: &Ident, params: &Ident) -> TokenStream {
    let indices = (0..shape.params.len()).map(Index::from);
    quote!(#message #(, #params.#indices)*)
}

fn key_life(args: &Args, idem: &TokenStream) -> TokenStream {
    match &args.key_life {
        Some(life) => {
            let life = millis(life, idem);
            quote!(#idem::Option::Some(#life))
        }
        None => quote!(#idem::Option::None),
    }
}

fn millis(time: &Time, idem: &TokenStream) -> TokenStream {
    let millis = u64::try_from(time.value.as_millis()).unwrap_or(u64::MAX);
    quote!(#idem::Duration::from_millis(#millis))
}
