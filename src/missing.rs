//! Stands in for a store or a broker whose feature is off, so that rustc names the feature where the type is used.

/// Defines a type of which nothing can be made: no argument of its constructors has the trait that they ask for.
macro_rules! missing {
    ($name:ident, $module:ident, $feature:literal, $message:literal, $label:literal, $note:literal) => {
        missing!($name, $module, [connect, options], $feature, $message, $label, $note);
    };
    (
        $name:ident, $module:ident, [$($constructor:ident),*],
        $feature:literal, $message:literal, $label:literal, $note:literal
    ) => {
        #[cfg(not(feature = $feature))]
        mod $module {
            /// Needs a feature of idem that is off.
            #[derive(Debug)]
            pub enum $name {}

            #[diagnostic::on_unimplemented(message = $message, label = $label, note = $note)]
            pub trait Feature<A> {
                type Output;

                fn output(_: A) -> Self::Output;
            }

            impl $name {
                $(
                    #[doc(hidden)]
                    #[allow(clippy::new_ret_no_self, reason = "there is nothing to return")]
                    pub fn $constructor<A>(argument: A) -> <Self as Feature<A>>::Output
                    where
                        Self: Feature<A>,
                    {
                        Self::output(argument)
                    }
                )*
            }
        }

        #[cfg(not(feature = $feature))]
        #[doc(hidden)]
        pub use $module::$name;
    };
}

missing!(
    RabbitMq,
    rabbitmq,
    "rabbitmq",
    "`RabbitMq` needs the feature `rabbitmq` of idem",
    "the feature `rabbitmq` is off",
    "switch it on in Cargo.toml: `idem = {{ package = \"idem-rs\", .., features = [\"rabbitmq\"] }}`"
);
missing!(
    Nats,
    nats,
    "nats",
    "`Nats` needs the feature `nats` of idem",
    "the feature `nats` is off",
    "switch it on in Cargo.toml: `idem = {{ package = \"idem-rs\", .., features = [\"nats\"] }}`"
);
missing!(
    Redis,
    redis,
    "redis",
    "`Redis` needs the feature `redis` of idem",
    "the feature `redis` is off",
    "switch it on in Cargo.toml: `idem = {{ package = \"idem-rs\", .., features = [\"redis\"] }}`"
);

/// As the others, with a second argument.
#[cfg(not(feature = "dynamodb"))]
mod dynamodb {
    /// Needs a feature of idem that is off.
    #[derive(Debug)]
    pub enum DynamoDb {}

    #[diagnostic::on_unimplemented(
        message = "`DynamoDb` needs the feature `dynamodb` of idem",
        label = "the feature `dynamodb` is off",
        note = "switch it on in Cargo.toml: `idem = {{ package = \"idem-rs\", .., features = [\"dynamodb\"] }}`"
    )]
    pub trait Feature<A> {
        type Output;

        fn output(_: A) -> Self::Output;
    }

    impl DynamoDb {
        #[doc(hidden)]
        pub fn connect<A>(config: A, _: impl Sized) -> <Self as Feature<A>>::Output
        where
            Self: Feature<A>,
        {
            Self::output(config)
        }
    }
}

#[cfg(not(feature = "dynamodb"))]
#[doc(hidden)]
pub use dynamodb::DynamoDb;

missing!(
    Kafka,
    kafka,
    "kafka",
    "`Kafka` needs the feature `kafka` of idem",
    "the feature `kafka` is off",
    "switch it on in Cargo.toml: `idem = {{ package = \"idem-rs\", .., features = [\"kafka\"] }}`"
);
missing!(
    Sqs,
    sqs,
    [new],
    "sqs",
    "`Sqs` needs the feature `sqs` of idem",
    "the feature `sqs` is off",
    "switch it on in Cargo.toml: `idem = {{ package = \"idem-rs\", .., features = [\"sqs\"] }}`"
);
missing!(
    Postgres,
    postgres,
    "postgres",
    "`Postgres` needs the feature `postgres` of idem",
    "the feature `postgres` is off",
    "switch it on in Cargo.toml: `idem = {{ package = \"idem-rs\", .., features = [\"postgres\"] }}`"
);
missing!(
    Sqlite,
    sqlite,
    "sqlite",
    "`Sqlite` needs the feature `sqlite` of idem",
    "the feature `sqlite` is off",
    "switch it on in Cargo.toml: `idem = {{ package = \"idem-rs\", .., features = [\"sqlite\"] }}`"
);
