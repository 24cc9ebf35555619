//! One window of Chromium, of some width, in light or dark, by the WebDriver protocol (<https://www.w3.org/TR/webdriver2/>).

use std::time::Duration;

use idem_services::Browser;
use reqwest::{Client, Method};
use serde_json::{Value, json};

const TAB: char = '\u{e004}';
const ENTER: char = '\u{e007}';

pub(crate) struct Screen {
    http: Client,
    /// The address of the session at the driver.
    session: String,
    /// The address under which the page is.
    base: String,
}

impl Screen {
    /// Opens a window in which scripts of pages are off.
    pub(crate) async fn open(browser: &Browser, base: &str, width: u32) -> Self {
        let window = format!("--window-size={width},1000");
        let args = ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--hide-scrollbars", &window];
        let mut options =
            json!({ "args": args, "prefs": { "profile.managed_default_content_settings.javascript": 2 } });
        if width < 500 {
            // A window of a desktop is not narrower than about 500 pixels.
            let metrics = json!({ "width": width, "height": 900, "pixelRatio": 1.0, "mobile": true, "touch": true });
            options["mobileEmulation"] = json!({ "deviceMetrics": metrics });
        }
        let log = json!({ "browser": "ALL" });
        let wanted = json!({ "browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": log });
        let (http, sessions) = (Client::new(), format!("{}/session", browser.url()));
        let asked = json!({ "capabilities": { "alwaysMatch": wanted } });
        let opened = send(&http, Method::POST, &sessions, &asked).await;
        let session = format!("{sessions}/{}", opened["sessionId"].as_str().unwrap());
        Self { http, session, base: base.to_owned() }
    }

    async fn post(&self, command: &str, body: Value) -> Value {
        send(&self.http, Method::POST, &format!("{}/{command}", self.session), &body).await
    }

    /// Shows all pages in this scheme from now on: `light` or `dark`.
    pub(crate) async fn scheme(&self, scheme: &str) {
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.devtools("Emulation.setEmulatedMedia", json!({ "features": features })).await;
    }

    pub(crate) async fn goto(&self, path: &str) {
        self.post("url", json!({ "url": format!("{}{path}", self.base) })).await;
    }

    /// The address, without the part that all pages share.
    pub(crate) async fn path(&self) -> String {
        let url = self.run("return location.href").await;
        let url = url.as_str().unwrap();
        url.strip_prefix(&self.base).unwrap_or(url).to_owned()
    }

    pub(crate) async fn text(&self) -> String {
        self.run("return document.body.innerText").await.as_str().unwrap().to_owned()
    }

    /// Runs a script of the driver, which a page without scripts cannot forbid.
    pub(crate) async fn run(&self, script: &str) -> Value {
        self.post("execute/sync", json!({ "script": script, "args": [] })).await
    }

    /// Presses keys one after another.
    pub(crate) async fn press(&self, keys: impl IntoIterator<Item = char>) {
        let press = |key: char| [json!({ "type": "keyDown", "value": key }), json!({ "type": "keyUp", "value": key })];
        let actions: Vec<Value> = keys.into_iter().flat_map(press).collect();
        let keyboard = json!({ "type": "key", "id": "keyboard", "actions": actions });
        self.post("actions", json!({ "actions": [keyboard] })).await;
    }

    /// Presses the tabulator until the focus is on what the selector finds.
    pub(crate) async fn tab_to(&self, selector: &str) {
        for _ in 0..100 {
            self.press([TAB]).await;
            if self.run(&format!("return document.activeElement.matches({selector:?})")).await == json!(true) {
                return;
            }
        }
        panic!("the tabulator does not reach {selector}");
    }

    /// Presses Enter, and waits until another page is there.
    pub(crate) async fn enter(&self) {
        self.run("window.isOld = true").await;
        self.press([ENTER]).await;
        for _ in 0..500 {
            if self.run("return window.isOld === undefined && document.readyState === 'complete'").await == json!(true)
            {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("there is no other page: {}", self.text().await);
    }

    /// What the console has said since it was last asked. A violation of the policy is there, too.
    pub(crate) async fn console(&self) -> Vec<Value> {
        self.post("se/log", json!({ "type": "browser" })).await.as_array().unwrap().clone()
    }

    /// A picture of the whole page, as base64.
    pub(crate) async fn picture(&self) -> String {
        let parameters = json!({ "format": "png", "captureBeyondViewport": true });
        let picture = self.devtools("Page.captureScreenshot", parameters).await;
        picture["data"].as_str().unwrap().to_owned()
    }

    /// What is wrong with the page for its readers, one line each.
    pub(crate) async fn faults(&self) -> String {
        let faults = self.run(include_str!("faults.js")).await;
        let faults: Vec<&str> = faults.as_array().unwrap().iter().filter_map(Value::as_str).collect();
        faults.join("\n")
    }

    pub(crate) async fn close(self) {
        send(&self.http, Method::DELETE, &self.session, &json!({})).await;
    }

    /// A command of Chromium's own protocol.
    async fn devtools(&self, cmd: &str, params: Value) -> Value {
        self.post("goog/cdp/execute", json!({ "cmd": cmd, "params": params })).await
    }
}

/// Sends a command to the driver. Returns the value of its answer.
async fn send(http: &Client, method: Method, url: &str, body: &Value) -> Value {
    let request = http.request(method, url).header("content-type", "application/json").body(body.to_string());
    let answer = request.send().await.unwrap();
    let (status, text) = (answer.status(), answer.text().await.unwrap());
    assert!(status.is_success(), "{url}: {text}");
    serde_json::from_str::<Value>(&text).unwrap()["value"].take()
}
