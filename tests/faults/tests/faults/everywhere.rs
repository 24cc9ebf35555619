//! Cases that are written once and run on each broker, directly, from the inbox and in batches: one test for each
//! combination.
//!
//! With `FAULTS_LOG=1` in the environment, a failing test shows its log.

use std::time::Duration;

use idem_faults::{Broker, Mode, Scene};

/// Nothing takes longer unless it waits for something that never comes.
const LIMIT: Duration = Duration::from_secs(300);

/// Runs a case in a separate scene.
pub(crate) async fn run<B: Broker>(mode: Mode, case: impl AsyncFnOnce(&Scene<B>)) {
    if std::env::var_os("FAULTS_LOG").is_some() {
        let _ = tracing_subscriber::fmt().with_max_level(tracing::Level::INFO).with_test_writer().try_init();
    }
    let Some(scene) = Scene::new(mode).await else { return };
    tokio::time::timeout(LIMIT, case(&scene)).await.expect("the case waits for something that does not come");
    scene.end().await;
}

/// Generates the cases on each broker.
macro_rules! on_servers {
    ($($case:ident)*) => {
        mod rabbitmq {
            $crate::everywhere::in_all_modes! { ::idem_faults::RabbitMq: $($case)* }
        }
        mod nats {
            $crate::everywhere::in_all_modes! { ::idem_faults::Nats: $($case)* }
        }
        mod kafka {
            $crate::everywhere::in_all_modes! { ::idem_faults::Kafka: $($case)* }
        }
        mod sqs {
            $crate::everywhere::in_all_modes! { ::idem_faults::Sqs: $($case)* }
        }
    };
}

macro_rules! in_all_modes {
    ($site:ty: $($case:ident)*) => {
        mod direct {$(
            #[::tokio::test(flavor = "multi_thread")]
            async fn $case() {
                $crate::everywhere::run::<$site>(::idem_faults::Mode::Direct, super::super::$case).await;
            }
        )*}
        mod inbox {$(
            #[::tokio::test(flavor = "multi_thread")]
            async fn $case() {
                $crate::everywhere::run::<$site>(::idem_faults::Mode::Inbox, super::super::$case).await;
            }
        )*}
        mod batch {$(
            #[::tokio::test(flavor = "multi_thread")]
            async fn $case() {
                $crate::everywhere::run::<$site>(::idem_faults::Mode::Batch, super::super::$case).await;
            }
        )*}
    };
}

pub(crate) use {in_all_modes, on_servers};
