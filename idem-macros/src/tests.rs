//! Snapshots of the expansion, so that a change to it is visible in the diff. `UPDATE_EXPECT=1 cargo test -p
//! idem-macros` updates them.

use expect_test::{Expect, expect};
use quote::quote;

use crate::expand::idempotent;

fn check(arguments: proc_macro2::TokenStream, item: proc_macro2::TokenStream, expected: &Expect) {
    let file = syn::parse2(idempotent(arguments, item)).unwrap();
    expected.assert_eq(&prettyplease::unparse(&file));
}

#[test]
fn all_arguments_and_extractors_around_the_connection() {
    let item = quote! {
        /// Documented.
        #[cfg(feature = "orders")]
        #[instrument]
        pub(crate) async fn r#match(
            OrderPaid { id }: OrderPaid,
            State(app): State<App>,
            tx: &mut Transaction<'_, Postgres>,
            headers: Headers,
        ) -> Result<(), AppError> {
            Ok(())
        }
    };
    let arguments = quote! {
        key = ("order.id", version.0, header("ce-id"), message_id, position, partition_key, cloud_event_id),
        name = "order_paid",
        event = "order.paid",
        fingerprint = prints::of_body,
        crate = ::shop::idem,
    };
    check(
        arguments,
        item,
        &expect![[r#"
            /// Documented.
            #[cfg(feature = "orders")]
            #[instrument]
            pub(crate) async fn r#match(
                OrderPaid { id }: OrderPaid,
                State(app): State<App>,
                tx: &mut Transaction<'_, Postgres>,
                headers: Headers,
            ) -> Result<(), AppError> {
                Ok(())
            }
            #[doc(hidden)]
            pub(crate) struct r#match {}
            #[automatically_derived]
            impl ::shop::idem::__private::Handler for r#match {
                const NAME: &'static ::shop::idem::__private::str = "order_paid";
                const EVENT: ::shop::idem::__private::Option<
                    &'static ::shop::idem::__private::str,
                > = ::shop::idem::__private::Option::Some("order.paid");
                const NEEDS_POSITION: ::shop::idem::__private::bool = true;
                const NEEDS_PARTITION_KEY: ::shop::idem::__private::bool = true;
                const NEEDS_CLOUD_EVENT: ::shop::idem::__private::bool = true;
                type Message = OrderPaid;
                type Input = OrderPaid;
                type Params = (State<App>, Headers);
                type Connection = Transaction<'static, Postgres>;
                fn key(
                    __message: &Self::Message,
                    __delivery: &::shop::idem::__private::Delivery,
                ) -> ::shop::idem::__private::Result<
                    ::shop::idem::__private::Key,
                    ::shop::idem::__private::KeyError,
                > {
                    ::shop::idem::__private::all_present(
                        ::shop::idem::__private::Key::composite(
                            &[
                                &__message.order.id,
                                &__message.version.0,
                                &::shop::idem::__private::header(__delivery, "ce-id"),
                                &::shop::idem::__private::message_id(__delivery),
                                &::shop::idem::__private::position(__delivery),
                                &::shop::idem::__private::partition_key(__delivery),
                                &::shop::idem::__private::cloud_event_id(__delivery),
                            ],
                        ),
                    )
                }
                const RECIPE: &'static ::shop::idem::__private::str = "of_body";
                fn fingerprint(
                    __delivery: &::shop::idem::__private::Delivery,
                ) -> ::shop::idem::__private::Fingerprint {
                    prints::of_body(__delivery)
                }
                async fn handle(
                    __message: Self::Input,
                    __params: Self::Params,
                    __tx: &mut Self::Connection,
                ) -> ::shop::idem::__private::Result<(), ::shop::idem::__private::BoxError> {
                    ::shop::idem::__private::finish(
                        r#match(__message, __params.0, __tx, __params.1).await,
                    )
                }
            }
        "#]],
    );
}

#[test]
fn the_function_and_a_stub_after_mistakes() {
    let item = quote! {
        fn order_paid(event: OrderPaid) -> Result<(), AppError> {
            Ok(())
        }
    };
    check(
        quote!(key = ""),
        item,
        &expect![[r#"
            fn order_paid(event: OrderPaid) -> Result<(), AppError> {
                Ok(())
            }
            #[doc(hidden)]
            struct order_paid {}
            #[automatically_derived]
            impl ::idem::__private::Handler for order_paid {
                const NAME: &'static ::idem::__private::str = "order_paid";
                type Message = ::idem::__private::Unknown;
                type Input = ::idem::__private::Unknown;
                type Params = ();
                type Connection = ::idem::__private::Unknown;
                fn key(
                    __message: &Self::Message,
                    __delivery: &::idem::__private::Delivery,
                ) -> ::idem::__private::Result<::idem::__private::Key, ::idem::__private::KeyError> {
                    ::idem::__private::stub()
                }
                async fn handle(
                    __message: Self::Input,
                    __params: Self::Params,
                    __tx: &mut Self::Connection,
                ) -> ::idem::__private::Result<(), ::idem::__private::BoxError> {
                    ::idem::__private::stub()
                }
            }
            ::core::compile_error! {
                "this is empty; expected a field (`\"event_id\"`, `\"order.id\"`), `header(\"..\")`, `message_id`, `position`, `partition_key`, `cloud_event_id`, or a tuple of these"
            }
            ::core::compile_error! {
                "a handler is async: `async fn handler(message: M, tx: &mut PgConnection) -> Result<(), E>`"
            }
            ::core::compile_error! {
                "a handler writes through the transaction of its claim: take `tx: &mut PgConnection`, or `tx: &mut SqliteConnection` (written out, without an alias for the reference)"
            }
        "#]],
    );
}
