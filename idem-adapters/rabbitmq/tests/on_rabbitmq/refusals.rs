//! Messages that a server refuses by closing the channel, on a server of the test's own: RabbitMQ does it for a routing
//! key that the user may not use.

use std::time::Duration;

use futures_util::future::join_all;
use idem_conformance::sink::{message, publish};
use idem_core::{Sink, SinkError, StagedMessage};
use idem_rabbitmq::{Exchange, RabbitMq};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

const LONG: Duration = Duration::from_secs(20);

/// Starts a server, and returns a sink on it. Of the routing keys, `forbidden` closes the channel, `silent` is never
/// confirmed, and all others are.
async fn sink() -> Exchange {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(serve(client));
        }
    });
    RabbitMq::connect(format!("amqp://guest:guest@127.0.0.1:{port}")).await.unwrap().exchange("")
}

/// Serves a connection until the client ends it.
async fn serve(mut client: TcpStream) -> std::io::Result<()> {
    client.read_exact(&mut [0; 8]).await?;
    // Version 0-9, no properties, PLAIN, and a locale.
    let mechanism = [&5_u32.to_be_bytes()[..], b"PLAIN", &5_u32.to_be_bytes(), b"en_US"].concat();
    send(&mut client, 0, &[&[0, 10, 0, 10, 0, 9, 0, 0, 0, 0], &mechanism[..]].concat()).await?;
    let mut published = 0_u64;
    loop {
        let mut head = [0; 7];
        client.read_exact(&mut head).await?;
        let mut content = vec![0; u32::from_be_bytes([head[3], head[4], head[5], head[6]]) as usize + 1];
        client.read_exact(&mut content).await?;
        if head[0] != 1 {
            continue;
        }
        match content[..4] {
            // start-ok, open, close, channel.open, confirm.select
            [0, 10, 0, 11] => send(&mut client, 0, &[0, 10, 0, 30, 0, 1, 0, 2, 0, 0, 0, 0]).await?,
            [0, 10, 0, 40] => send(&mut client, 0, &[0, 10, 0, 41, 0]).await?,
            [0, 10, 0, 50] => send(&mut client, 0, &[0, 10, 0, 51]).await?,
            [0, 20, 0, 10] => send(&mut client, 1, &[0, 20, 0, 11, 0, 0, 0, 0]).await?,
            [0, 85, 0, 10] => send(&mut client, 1, &[0, 85, 0, 11]).await?,
            // The routing key follows the empty name of the exchange.
            [0, 60, 0, 40] => {
                published += 1;
                let key = &content[8..8 + usize::from(content[7])];
                match key {
                    b"forbidden" => {
                        let text = b"ACCESS_REFUSED - access to topic 'forbidden' in exchange '' refused";
                        let text = [&[text.len() as u8], &text[..]].concat();
                        send(&mut client, 1, &[&[0, 20, 0, 40, 1, 147], &text[..], &[0, 60, 0, 40]].concat()).await?;
                    }
                    b"silent" => {}
                    _ => send(&mut client, 1, &[&[0, 60, 0, 80], &published.to_be_bytes()[..], &[0]].concat()).await?,
                }
            }
            _ => {}
        }
    }
}

async fn send(client: &mut TcpStream, channel: u8, content: &[u8]) -> std::io::Result<()> {
    let length = u32::try_from(content.len()).unwrap().to_be_bytes();
    client.write_all(&[&[1, 0, channel], &length[..], content, &[0xCE]].concat()).await
}

/// Publishes these at once, again and again as a relay does, until each is confirmed or refused. A call that gets no
/// answer is dropped.
async fn all(sink: &Exchange, messages: &[StagedMessage]) -> Vec<bool> {
    let until = async |message: &StagedMessage| {
        loop {
            match timeout(Duration::from_secs(5), sink.publish(message)).await {
                Ok(Ok(())) => return true,
                Ok(Err(SinkError::Message(_))) => return false,
                _ => tokio::task::yield_now().await,
            }
        }
    };
    timeout(LONG, join_all(messages.iter().map(until))).await.unwrap()
}

/// One that is never answered is among them, and is unconfirmed as well when the channel ends.
#[tokio::test]
async fn a_forbidden_message_is_found_among_its_neighbours() {
    let sink = sink().await;
    sink.open().await.unwrap();
    let silent = message("silent");
    let hanging = async {
        loop {
            let _ = timeout(Duration::from_millis(100), sink.publish(&silent)).await;
            // A relay waits as well before it publishes again a message that got no answer.
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    };
    let messages: Vec<_> = (1..9).map(|at| message(if at == 4 { "forbidden" } else { "fits" })).collect();
    let results = tokio::select! {
        results = all(&sink, &messages) => results,
        () = hanging => Vec::new(),
    };
    assert_eq!(results, [true, true, true, false, true, true, true, true]);
    sink.close().await;
}

/// After a refusal, messages that had nothing to do with it do not wait for those that had.
#[tokio::test]
async fn other_messages_do_not_wait_for_the_suspects() {
    let sink = sink().await;
    sink.open().await.unwrap();
    let (silent, forbidden) = (message("silent"), message("forbidden"));
    let (silenced, refused) = tokio::join!(publish(&sink, &silent), publish(&sink, &forbidden));
    for result in [silenced, refused] {
        assert!(matches!(result, Err(SinkError::Broker(_))), "{result:?}");
    }
    let mut hangs = std::pin::pin!(sink.publish(&silent));
    assert!(timeout(Duration::from_millis(300), hangs.as_mut()).await.is_err());
    publish(&sink, &message("fits")).await.unwrap();
    sink.close().await;
}
