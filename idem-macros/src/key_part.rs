//! `#[derive(KeyPart)]` for newtypes.

use proc_macro2::{Span, TokenStream, TokenTree};
use quote::{ToTokens, quote, quote_spanned};
use syn::parse::Result;
use syn::spanned::Spanned;
use syn::{Attribute, Data, DeriveInput, Error, Field, Generics, Ident, Member, Path, Token, Type, parse_quote};

use crate::expand::{at, idem, local};
use crate::types::is_phantom;

const ENUM: &str = "an enum is not one value: implement `KeyPart`, and write a text that stays the same when variants are \
                    added or renamed";
const UNION: &str = "a union is not one value: implement `KeyPart`";
const NOTHING: &str = "there is nothing to write: a key part is a newtype, with one field";
const SEVERAL: &str = "a key part is one value: derive it for a newtype; for a key of several fields, name them where it is \
                       used, `#[idempotent(key = (\"order\", \"line\"))]`";
const ATTRIBUTE: &str = "expected `#[key_part(crate = path)]`";

/// Returns an implementation of `KeyPart` that writes the one field.
///
/// It is generated despite any error, so that an error is reported only at its cause and not again at each use.
pub(crate) fn key_part(item: TokenStream) -> TokenStream {
    let input = match syn::parse2::<DeriveInput>(item) {
        Ok(input) => input,
        Err(error) => return error.into_compile_error(),
    };
    let mut errors = Vec::new();
    let krate = krate(&input.attrs).unwrap_or_else(|error| {
        errors.push(error);
        None
    });
    let field = field(&input).map_err(|error| errors.push(error)).ok();
    let implementation = implementation(&input, krate.as_ref(), field.as_ref());
    let errors = errors.into_iter().map(Error::into_compile_error);
    quote!(#implementation #(#errors)*)
}

/// The field of a newtype.
struct Inner<'a> {
    member: Member,
    ty: &'a Type,
}

fn field(input: &DeriveInput) -> Result<Inner<'_>> {
    let fields = match &input.data {
        Data::Struct(data) => &data.fields,
        Data::Enum(data) => return Err(Error::new(data.enum_token.span, ENUM)),
        Data::Union(data) => return Err(Error::new(data.union_token.span, UNION)),
    };
    let counted: Vec<(Member, &Field)> =
        fields.members().zip(fields).filter(|(_, field)| !is_phantom(&field.ty)).collect();
    match &counted[..] {
        [] => Err(Error::new(input.ident.span(), NOTHING)),
        [(member, field)] => Ok(Inner { member: member.clone(), ty: &field.ty }),
        [_, (_, second), ..] => Err(Error::new_spanned(second, SEVERAL)),
    }
}

/// Returns the path in `#[key_part(crate = path)]`.
fn krate(attrs: &[Attribute]) -> Result<Option<Path>> {
    let mut krate = None;
    for attr in attrs.iter().filter(|attr| attr.path().is_ident("key_part")) {
        attr.parse_args_with(|input: syn::parse::ParseStream<'_>| {
            if !input.peek(Token![crate]) {
                return Err(input.error(ATTRIBUTE));
            }
            input.parse::<Token![crate]>()?;
            input.parse::<Token![=]>()?;
            krate = Some(input.call(Path::parse_mod_style)?);
            Ok(())
        })
        .map_err(|error| Error::new(error.span(), ATTRIBUTE))?;
    }
    Ok(krate)
}

fn implementation(input: &DeriveInput, krate: Option<&Path>, field: Option<&Inner<'_>>) -> TokenStream {
    let (name, path) = (&input.ident, idem(krate, Span::call_site()));
    let generics = bounded(&input.generics, &path, field);
    let (parameters, arguments, bounds) = generics.split_for_impl();
    let deprecated = input.attrs.iter().any(|attr| attr.path().is_ident("deprecated"));
    let deprecated = deprecated.then(|| quote!(#[allow(deprecated)]));
    let key = local("__key");
    let write = match field {
        Some(Inner { member, ty }) => {
            // An error about a type that is no key part points to the type.
            let place = at(ty.span());
            let path = idem(krate, place);
            quote_spanned!(place=> #path::KeyPart::write(&self.#member, #key))
        }
        None => quote!({ let _ = #key; #path::stub() }),
    };
    quote! {
        #[automatically_derived]
        #deprecated
        impl #parameters #path::KeyPart for #name #arguments #bounds {
            fn write(&self, #key: &mut #path::Key) -> #path::Result<(), #path::KeyError> {
                #write
            }
        }
    }
}

/// Adds the bound that the field is a key part, if that depends on a type parameter.
fn bounded(generics: &Generics, idem: &TokenStream, field: Option<&Inner<'_>>) -> Generics {
    let mut generics = generics.clone();
    if let Some(Inner { ty, .. }) = field
        && generics.type_params().any(|param| mentions(ty.to_token_stream(), &param.ident))
    {
        generics.make_where_clause().predicates.push(parse_quote!(#ty: #idem::KeyPart));
    }
    generics
}

fn mentions(tokens: TokenStream, name: &Ident) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Ident(ident) => ident == *name,
        TokenTree::Group(group) => mentions(group.stream(), name),
        _ => false,
    })
}
