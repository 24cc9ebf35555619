//! What stands in the program in the end: names, types, and one call per item.

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Error, Ident, Index, LitStr, ReturnType};

use crate::args::{Args, MAX_NAME, Part};
use crate::header::{Header, Shape};

/// The function as it is, and with it a type of its name that implements `Handler`.
///
/// Whatever is wrong, the function stays and the type is there, so that no mistake is reported twice: at its place, and
/// wherever the handler is used.
pub(crate) fn idempotent(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let mut errors = Vec::new();
    let Ok(header) = syn::parse2::<Header>(item.clone()) else {
        let error = Error::new(Span::call_site(), "`#[idempotent]` goes on an `async fn`").into_compile_error();
        return quote!(#item #error);
    };
    let args = Args::parse(arguments, &mut errors);
    let shape = header.shape(&mut errors);
    let name = name(&args, &header.sig.ident, &mut errors);
    let errors = errors.into_iter().map(Error::into_compile_error);
    let handler = (!header.is_method()).then(|| handler(&args, &header, shape.as_ref(), &name));
    quote!(#item #handler #(#errors)*)
}

/// The name of the handler, the function's by default.
fn name(args: &Args, function: &Ident, errors: &mut Vec<Error>) -> String {
    let name = args.name.as_ref().map_or_else(|| function.unraw().to_string(), LitStr::value);
    if args.name.is_none() && name.len() > MAX_NAME {
        let text = format!("the name is stored, in at most {MAX_NAME} bytes: give a shorter one with `name = \"..\"`");
        errors.push(Error::new_spanned(function, text));
    }
    name
}

fn handler(args: &Args, header: &Header, shape: Option<&Shape>, name: &str) -> TokenStream {
    let Header { attrs, vis, sig } = header;
    let idem = args.krate.as_ref().map_or_else(|| quote!(::idem::__private), |path| quote!(#path::__private));
    // With the function's own span, rustc reports a handler that is never registered twice.
    let handler = relocated(&sig.ident);
    let [message, params, tx, delivery] = ["__message", "__params", "__tx", "__delivery"].map(local);
    let cfgs = attrs.iter().filter(|attr| attr.path().is_ident("cfg")).collect::<Vec<_>>();

    let event = args
        .event
        .as_ref()
        .map(|event| quote!(const EVENT: #idem::Option<&'static #idem::str> = #idem::Option::Some(#event);));
    let types = types(shape, &idem);
    let key =
        args.key.as_ref().filter(|_| shape.is_some()).map_or_else(|| quote!(#idem::stub()), |key| key_of(key, &idem));
    let fingerprint = args
        .fingerprint
        .as_ref()
        .map(|path| quote!(fn fingerprint(#delivery: &#idem::Delivery) -> #idem::Fingerprint { #path(#delivery) }));
    let call = shape.map_or_else(|| quote!(#idem::stub()), |shape| call(header, shape, &idem));
    quote! {
        #(#cfgs)*
        #[doc(hidden)]
        #[allow(non_camel_case_types)]
        #vis struct #handler {}

        #(#cfgs)*
        #[automatically_derived]
        #[allow(deprecated)]
        impl #idem::Handler for #handler {
            const NAME: &'static #idem::str = #name;
            #event
            #types
            fn key(#message: &Self::Message, #delivery: &#idem::Delivery) -> #idem::Result<#idem::Key, #idem::KeyError> {
                #key
            }
            #fingerprint
            async fn handle(
                #message: Self::Message,
                #params: Self::Params,
                #tx: &mut Self::Connection,
            ) -> #idem::Result<(), #idem::BoxError> {
                #call
            }
        }
    }
}

fn types(shape: Option<&Shape>, idem: &TokenStream) -> TokenStream {
    let Some(Shape { message, params, connection, .. }) = shape else {
        return quote!(type Message = #idem::Unknown; type Params = (); type Connection = #idem::Unknown;);
    };
    // That a public handler takes a private type, or no extractor, is shown at the parameter.
    let message = quote_spanned!(at(message.span())=> type Message = #message;);
    let params = match params.first() {
        Some(first) => quote_spanned!(at(first.span())=> (#(#params,)*)),
        None => quote!(()),
    };
    quote!(#message type Params = #params; type Connection = #connection;)
}

fn key_of(parts: &[Part], idem: &TokenStream) -> TokenStream {
    let parts = parts.iter().map(|part| match part {
        Part::Field(members, span) => {
            let mut message = local("__message");
            message.set_span(message.span().located_at(*span));
            quote_spanned!(at(*span)=> &#message #(.#members)*)
        }
        Part::Fact(word, name) => {
            let (fact, name) = (relocated(word), name.iter());
            let delivery = local("__delivery");
            quote!(&#idem::#fact(#delivery #(, #name)*))
        }
    });
    let parts = parts.collect::<Vec<_>>();
    match &parts[..] {
        [part] => quote!(#idem::Key::of(#part)),
        parts => quote!(#idem::Key::composite(&[#(#parts),*])),
    }
}

/// The call of the user's function, with the arguments in its own order.
fn call(header: &Header, shape: &Shape, idem: &TokenStream) -> TokenStream {
    let [message, params, tx] = ["__message", "__params", "__tx"].map(local);
    let mut arguments = vec![quote!(#message)];
    arguments.extend((0..shape.params.len()).map(Index::from).map(|index| quote!(#params.#index)));
    arguments.insert(shape.connection_at, quote!(#tx));
    let mut function = header.sig.ident.clone();
    let ReturnType::Type(_, output) = &header.sig.output else { return quote!(#idem::stub()) };
    // A wrong return type is shown where it is written.
    let span = at(output.span());
    function.set_span(span);
    quote_spanned!(span=> #idem::finish(#function(#(#arguments),*).await))
}

/// A name that neither hides one of the user's nor is hidden by one, as a constant called `tx` would.
fn local(name: &str) -> Ident {
    Ident::new(name, Span::mixed_site())
}

/// This place, resolved as if it stood at the attribute.
fn at(span: Span) -> Span {
    Span::call_site().located_at(span)
}

fn relocated(ident: &Ident) -> Ident {
    let mut ident = ident.clone();
    ident.set_span(at(ident.span()));
    ident
}
