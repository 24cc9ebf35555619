//! Texts of an operator: what comes from outside harms neither a terminal nor a shell nor a page, and a key is found by its text.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a panic is how a test fails")]

use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use idem_core::operator::{Pretty, Time, ago, command_line, harmless, is_harmless, is_secret, keys, roles, shell};
use idem_core::{Key, KeyPart};
use uuid::Uuid;

/// Whatever is in it: a shell passes on the same word.
#[cfg(unix)]
#[test]
fn a_shell_reads_a_quoted_word_as_it_was() {
    let odd = [
        "",
        " ",
        "e-1",
        "billing/order_paid",
        "it's",
        "''",
        "\"",
        "a b",
        "$(id)",
        "`id`",
        "${HOME}",
        "$HOME",
        "~",
        "~/x",
        "*",
        "?",
        "[a]",
        "{a,b}",
        "a;b",
        "a&b",
        "a|b",
        "a>b",
        "<",
        "#",
        "#a",
        "a#b",
        "!",
        "!!",
        "^a",
        "\\",
        "a\\",
        "\\n",
        "%s",
        "a\nb",
        "\n",
        "a\tb",
        "-7",
        "--json",
        "=ls",
        "a=b",
        "(m1, 1)",
        "0xff00",
        "\u{e4}\u{1f4e6}",
        "\u{202e}",
        "(",
        ")",
        "'; rm -rf / #",
        "\u{7f}",
    ];
    for word in odd {
        let ended = Command::new("sh")
            .arg("-c")
            .arg(format!("set -- {}; printf '%s|' $# \"$@\"", shell(word)))
            .output()
            .unwrap();
        assert_eq!(String::from_utf8(ended.stdout).unwrap(), format!("1|{word}|"), "{}", shell(word));
    }
}

/// The key of a message comes from its producer, who must not choose the flags of a command that a person copies.
#[test]
fn an_argument_is_never_read_as_a_flag() {
    let line = |arguments: &[&str]| command_line(&["idem", "why"], arguments);
    assert_eq!(line(&["billing/x", "e-1"]), "idem why billing/x e-1");
    assert_eq!(line(&["billing/x", "it's"]), r"idem why billing/x 'it'\''s'");
    for flag in ["-7", "--database=postgres://elsewhere/db", "-"] {
        assert_eq!(line(&["billing/x", flag]), format!("idem why -- billing/x {flag}"));
    }
    assert_eq!(line(&["billing/x", ""]), "idem why billing/x ''");
    assert_eq!(command_line(&["idem", "--schema", "a b", "dead", "show"], &["42"]), "idem --schema 'a b' dead show 42");
}

#[test]
fn what_could_move_the_cursor_or_turn_the_text_is_written_out() {
    let harmful = [
        '\0',
        '\u{1}',
        '\u{7}',
        '\u{8}',
        '\t',
        '\n',
        '\r',
        '\u{1b}',
        '\u{7f}',
        '\u{80}',
        '\u{85}',
        '\u{9b}',
        '\u{9f}',
        '\u{ad}',
        '\u{61c}',
        '\u{115f}',
        '\u{200b}',
        '\u{200d}',
        '\u{200e}',
        '\u{200f}',
        '\u{2028}',
        '\u{2029}',
        '\u{202a}',
        '\u{202e}',
        '\u{2060}',
        '\u{2066}',
        '\u{2069}',
        '\u{feff}',
        '\u{fff9}',
        '\u{e0001}',
        '\u{e0041}',
    ];
    for character in harmful {
        assert!(!is_harmless(character), "{character:?}");
        assert_eq!(harmless(&format!("a{character}b"), 100), format!("a{}b", character.escape_unicode()));
    }
    for text in ["", "e-1", "it's \"7\" \\ 100% <b>&amp;", "\u{e4}\u{df}\u{4e2d}\u{1f4e6}", "\u{5d0}\u{645}"] {
        assert!(text.chars().all(is_harmless));
        assert_eq!(harmless(text, 100), text);
    }
}

#[test]
fn a_long_text_is_cut_between_characters() {
    let text = "\u{1f4e6}".repeat(5);
    assert_eq!((harmless(&text, 5), harmless(&text, 4)), (text.clone(), format!("{} ..", "\u{1f4e6}".repeat(4))));
    assert_eq!(harmless("a", 0), " ..");
    assert_eq!(harmless(&"\u{1b}".repeat(1_000_000), 3), format!("{} ..", r"\u{1b}".repeat(3)));
}

#[test]
fn a_name_of_a_secret_is_known_in_each_writing() {
    let secrets = [
        "Authorization",
        "proxy-authorization",
        "Cookie",
        "set-cookie",
        "access_token",
        "TOKEN",
        "idToken",
        "client_secret",
        "password",
        "Passwd",
        "passwort",
        "db_passWORD",
        "X-API-Key",
        "api_key",
        "apiKey",
        "aws_credentials",
        "x-hub-signature-256",
    ];
    assert!(secrets.iter().all(|name| is_secret(name)));
    let open = ["", "order_id", "amount", "message_id", "author", "key", "event", "sign", "pass", "\u{130}"];
    assert!(!open.iter().any(|name| is_secret(name)));
}

/// Wherever they are, and whatever they are.
#[test]
fn secrets_of_a_payload_are_hidden() {
    let payload = br#"{"order": 7, "password": "p-1", "user": {"apiKey": ["p-2", {"x": "p-3"}], "name": "anna"},
                       "list": [{"Authorization": {"a": "p-4"}}], "token": 5005, "secret": null,
                       "url": "https://bank/pay?token=p-5", "body": "{\"password\": \"p-6\"}"}"#;
    let (pretty, is_cut) = Pretty::of(payload, 4096);
    let text = pretty.text();
    assert!(matches!(pretty, Pretty::Json(_)) && !is_cut && text.contains("\"anna\"") && text.contains("7"), "{text}");
    assert!(
        !["p-1", "p-2", "p-3", "p-4", "p-5", "p-6", "5005", "null"].iter().any(|secret| text.contains(secret)),
        "{text}"
    );
    assert!(text.contains("hidden"), "{text}");

    // A payload that is too long to be shown is cut behind the search, and one that is no JSON is searched by its lines.
    let long = format!(r#"{{"password": "p-1", "rest": "{}"}}"#, "x".repeat(10_000));
    let (pretty, is_cut) = Pretty::of(long.as_bytes(), 500);
    assert!(is_cut && pretty.text().chars().count() <= 510 && !pretty.text().contains("p-1"), "{pretty:?}");
    let others = [
        "user=anna&password=p-1&more=2",
        "name: anna\nAPI-Key: p-1\nrow: 2",
        "<a>1</a><password>p-1</password>",
        "{\"password\": \"p-1\",",
        "{\"a\":1}\n{\"token\":\"p-1\"}",
    ];
    for text in others {
        let (pretty, _) = Pretty::of(text.as_bytes(), 4096);
        assert!(matches!(pretty, Pretty::Text(_)) && !pretty.text().contains("p-1"), "{pretty:?}");
    }
    // Larger than what is parsed.
    let huge = format!(r#"{{"token": "p-1", "rest": "{}"}}"#, "x".repeat(10 << 20));
    assert!(!Pretty::of(huge.as_bytes(), 4096).0.text().contains("p-1"));
}

#[test]
fn a_payload_is_json_text_or_hexadecimal_and_harmless() {
    let (json, _) = Pretty::of(r#"{"a": "\u001b[31m \u202e ä", "b": [1, 2]}"#.as_bytes(), 4096);
    let Pretty::Json(text) = &json else { panic!("{json:?}") };
    assert!(text.contains('ä') && text.lines().count() > 3, "{text}");
    assert!(text.lines().all(|line| line.chars().all(is_harmless)), "{text:?}");
    let (plain, _) = Pretty::of("first\u{1b}[2J\nsecond\t<b>".as_bytes(), 4096);
    assert_eq!(plain, Pretty::Text("first\\u{1b}[2J\nsecond\\u{9}<b>".to_owned()));
    assert_eq!(Pretty::of(&[0xff, 0x00, 0x1b], 4096), (Pretty::Hex("ff001b".to_owned()), false));
    assert_eq!(Pretty::of(&[0xff; 100], 10), (Pretty::Hex("ff".repeat(5)), true));
    assert_eq!(Pretty::of(b"", 10).0.text(), "");
    // Deeper than a parser goes.
    let deep = "[".repeat(100_000);
    assert!(matches!(Pretty::of(deep.as_bytes(), 100), (Pretty::Text(_), true)));
}

/// A producer's clock may be anywhere, and a page shows it.
#[test]
fn no_time_is_beyond_what_can_be_written() {
    let at = |millis: u64| Time(UNIX_EPOCH + Duration::from_millis(millis));
    assert_eq!(at(1_764_525_682_120).to_string(), "2025-11-30T18:01:22.120Z");
    let days = |days: u64| Duration::from_secs(days * 86_400);
    let odd = [
        UNIX_EPOCH.checked_sub(days(1)),
        UNIX_EPOCH.checked_sub(days(400_000)),
        UNIX_EPOCH.checked_add(days(3_000_000)),
        UNIX_EPOCH.checked_add(days(20_000_000_000)),
        SystemTime::now().checked_add(Duration::from_micros(u64::MAX)),
    ];
    for time in odd.into_iter().flatten() {
        let (text, json) = (Time(time).to_string(), serde_json::to_string(&Time(time)).unwrap());
        assert!(text.len() == 24 && json == format!("\"{text}\""), "{text}");
    }
    for millis in [i64::MIN, -1, 0, i64::MAX] {
        let time: Time = serde_json::from_str(&millis.to_string()).unwrap();
        assert_eq!(time.to_string().len(), 24);
    }
}

#[test]
fn a_time_is_read_as_people_write_it() {
    let at = |seconds: u64| UNIX_EPOCH + Duration::from_secs(seconds);
    let read = |text: &str| text.parse::<Time>().unwrap_or_else(|error| panic!("{error}")).0;
    for (text, expected) in [
        ("2025-11-30", at(1_764_460_800)),
        ("2025-11-30T18:01Z", at(1_764_525_660)),
        ("2025-11-30T18:01:22Z", at(1_764_525_682)),
        ("2025-11-30 18:01:22", at(1_764_525_682)),
    ] {
        assert_eq!(read(text), expected, "{text}");
    }
    for (text, hours) in [("2h", 2), ("1day", 24), ("7d", 168), ("120min", 2)] {
        let (before, time, after) = (SystemTime::now(), read(text), SystemTime::now());
        let then = time + Duration::from_secs(hours * 3600);
        assert!((before..=after).contains(&then), "{text}");
    }
    let begin = |text: &str| read(text).duration_since(UNIX_EPOCH).unwrap().as_secs();
    // Read twice around midnight.
    let (yesterday, today) = (begin("yesterday"), begin("today"));
    assert!(today.is_multiple_of(86_400) && [86_400, 2 * 86_400].contains(&(today - yesterday)));
    for bad in ["", "tomorrow", "2", "-2h", "2025-13-01", "2025-11-30T", "\u{1f4e6}", "18:01", "2025-11-30T18:01+01:00"]
    {
        assert!(bad.parse::<Time>().is_err(), "{bad}");
    }
}

#[test]
fn a_duration_has_its_two_largest_units() {
    let table = [
        (0, "0 s"),
        (59, "59 s"),
        (60, "1 min"),
        (61, "1 min 1 s"),
        (3600, "1 h"),
        (7380, "2 h 3 min"),
        (7399, "2 h 3 min"),
        (86_400, "1 d"),
        (90_000, "1 d 1 h"),
        (86_460, "1 d"),
    ];
    for (seconds, text) in table {
        assert_eq!(ago(Duration::from_secs(seconds)), text);
    }
}

const ID: Uuid = Uuid::from_u128(0x9513_c1b4_5c2d_4d3c_8a55_4be7_d8a0_b1a2);

fn composite(parts: &[&dyn KeyPart]) -> Key {
    Key::composite(parts).unwrap()
}

/// As the log writes it, and for parts as a person types them.
#[test]
fn a_key_is_found_by_its_text() {
    let written = Key::stored(ID.to_string().as_bytes()).unwrap();
    let in_hex = format!("0x{}", hex(ID.to_string().as_bytes()));
    let table: [(&str, Key); 13] = [
        ("e-1", Key::of("e-1").unwrap()),
        ("7", Key::of(&7_i64).unwrap()),
        ("-7", Key::of(&-7_i64).unwrap()),
        ("9513C1B4-5C2D-4D3C-8A55-4BE7D8A0B1A2", Key::of(&ID).unwrap()),
        ("(m1, 1)", composite(&[&"m1", &1_i64])),
        ("m1,1", composite(&[&"m1", &1_i64])),
        ("m1,1", Key::of("m1,1").unwrap()),
        ("9513c1b4-5c2d-4d3c-8a55-4be7d8a0b1a2,line-7", composite(&[&ID, &"line-7"])),
        ("a,b,c", composite(&[&"a", &"b", &"c"])),
        ("0xff00", Key::of(&[0xff_u8, 0x00]).unwrap()),
        ("0xff00", Key::of("0xff00").unwrap()),
        // By its bytes exactly, and by its text, although a UUID is usually kept as 16 bytes.
        (&in_hex, written.clone()),
        ("9513c1b4-5c2d-4d3c-8a55-4be7d8a0b1a2", written),
    ];
    for (text, key) in table {
        let found = keys(text);
        assert!(found.contains(&key), "{text}: {found:?}");
        let distinct: std::collections::HashSet<_> = found.iter().collect();
        assert_eq!(distinct.len(), found.len(), "{text}: {found:?}");
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// However odd it is, there are few readings of a text, and none where it cannot be a key.
#[test]
fn a_text_has_few_readings_as_a_key() {
    assert_eq!(keys(""), []);
    assert_eq!(keys(&"x".repeat(256)), []);
    let (commas, parts) = (",".repeat(255), "a,".repeat(127));
    for odd in [commas.as_str(), &parts, "(", ")", "()", "(,)", "(a", ", ", "0x", "(a, b), c", "(a,b)"] {
        assert!(keys(odd).len() <= 64, "{odd}");
    }
}

/// Each role of the text is created in turn, and names are quoted.
#[test]
fn the_roles_are_those_of_one_schema() {
    let text = roles("my \"own\"");
    assert!(text.contains(r#""my ""own""""#) && !text.contains("idem_store"), "{text}");
    for role in ["migrator", "worker", "operator", "viewer"] {
        assert!(text.contains(role), "{role} is not in {text}");
    }
}
