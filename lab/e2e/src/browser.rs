//! A real headless browser, driven over the WebDriver protocol.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use capmaas_testbed::tools::{BROWSER_PACKAGES, ensure_packages};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

const ANSWER: Duration = Duration::from_secs(60);

/// A Chromium with a profile of its own. Terminated on drop.
pub struct Browser {
    driver: Child,
    session: String,
    http: reqwest::Client,
    profile: tempfile::TempDir,
}

/// The browser's network traffic.
#[derive(Debug, Default)]
pub struct Traffic {
    pub requests: Vec<Request>,
    /// URLs with the status of their responses.
    pub answers: Vec<(String, u64)>,
}

/// A request that a page made.
#[derive(Debug)]
pub struct Request {
    pub url: String,
    /// The `Authorization` header.
    pub authorization: Option<String>,
}

impl Browser {
    /// Starts a browser. If none is installed, the error names the packages to install.
    pub async fn start() -> anyhow::Result<Self> {
        tokio::task::spawn_blocking(|| ensure_packages(BROWSER_PACKAGES))
            .await?
            .context("this scenario looks at a page in Chromium: make tools with --scenarios brings it")?;
        let mut command = Command::new("chromedriver");
        command.arg("--port=0").stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::null());
        // In its own process group, so that the browser it starts is terminated with it.
        let mut driver = command.process_group(0).kill_on_drop(true).spawn().context("start chromedriver")?;
        let printed = driver.stdout.take().context("chromedriver has no output")?;
        let mut lines = BufReader::new(printed).lines();
        let port = loop {
            let line = lines.next_line().await?.context("chromedriver ended before it listened")?;
            if let Some((_, rest)) = line.split_once("started successfully on port ") {
                break rest.trim_end_matches('.').to_owned();
            }
        };
        tokio::spawn(async move { while lines.next_line().await.is_ok_and(|line| line.is_some()) {} });
        let profile = tempfile::tempdir()?;
        let http = reqwest::Client::builder().no_proxy().timeout(ANSWER).build()?;
        let mut browser = Self { driver, session: format!("http://127.0.0.1:{port}/session"), http, profile };
        let wanted = browser.capabilities();
        let answer = browser.post("", &wanted).await?;
        let id = answer["sessionId"].as_str().context("chromedriver gave no session")?;
        browser.session = format!("{}/{id}", browser.session);
        Ok(browser)
    }

    /// Only loopback is reachable, and every request is logged.
    fn capabilities(&self) -> Value {
        let profile = format!("--user-data-dir={}", self.profile.path().display());
        let arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--no-first-run",
            "--no-proxy-server",
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
            "--window-size=1360,900",
            &profile,
        ];
        json!({"capabilities": {"alwaysMatch": {
            "goog:chromeOptions": {"args": arguments},
            "goog:loggingPrefs": {"performance": "ALL", "browser": "ALL"},
        }}})
    }

    async fn post(&self, what: &str, body: &Value) -> anyhow::Result<Value> {
        let request = self.http.post(format!("{}{what}", self.session)).header("content-type", "application/json");
        let answer =
            request.body(body.to_string()).send().await.with_context(|| format!("ask chromedriver for {what}"))?;
        let is_good = answer.status().is_success();
        let text = answer.text().await?;
        ensure!(is_good, "chromedriver refuses {what}: {text}");
        Ok(serde_json::from_str::<Value>(&text)?["value"].clone())
    }

    /// Opens an address.
    pub async fn open(&self, url: &str) -> anyhow::Result<()> {
        self.post("/url", &json!({ "url": url })).await.map(drop)
    }

    /// Runs a function body in the page and returns its result.
    pub async fn run(&self, script: &str) -> anyhow::Result<Value> {
        self.post("/execute/sync", &json!({"script": script, "args": []})).await
    }

    /// Types keys into the page, as a user without a mouse would.
    pub async fn press(&self, keys: &str) -> anyhow::Result<()> {
        let strokes: Vec<Value> = keys
            .chars()
            .flat_map(|key| [json!({"type": "keyDown", "value": key}), json!({"type": "keyUp", "value": key})])
            .collect();
        let actions = json!({"actions": [{"type": "key", "id": "keyboard", "actions": strokes}]});
        self.post("/actions", &actions).await.map(drop)
    }

    pub async fn screenshot(&self, path: &Path) -> anyhow::Result<()> {
        let request = self.http.get(format!("{}/screenshot", self.session));
        let answer: Value = serde_json::from_str(&request.send().await?.text().await?)?;
        let picture = BASE64_STANDARD.decode(answer["value"].as_str().context("no picture")?)?;
        std::fs::write(path, picture).with_context(|| format!("write {}", path.display()))
    }

    /// The requests that pages made since the last call, and the responses.
    pub async fn traffic(&self) -> anyhow::Result<Traffic> {
        let entries = self.post("/se/log", &json!({"type": "performance"})).await?;
        let mut traffic = Traffic::default();
        for entry in entries.as_array().context("no log")? {
            let entry: Value = serde_json::from_str(entry["message"].as_str().unwrap_or_default())?;
            let (message, params) = (&entry["message"], &entry["message"]["params"]);
            let url = |of: &str| params[of]["url"].as_str().unwrap_or_default().to_owned();
            // Ignore the browser's own start page, which makes no network requests.
            let is_network = |url: &str| url.starts_with("http") || url.starts_with("ws");
            match message["method"].as_str() {
                Some("Network.requestWillBeSent") if is_network(&url("request")) => {
                    let headers = params["request"]["headers"].as_object().into_iter().flatten();
                    let token = headers.clone().find(|(name, _)| name.eq_ignore_ascii_case("authorization"));
                    let token = token.and_then(|(_, value)| Some(value.as_str()?.to_owned()));
                    traffic.requests.push(Request { url: url("request"), authorization: token });
                }
                Some("Network.responseReceived") if is_network(&url("response")) => {
                    traffic.answers.push((url("response"), params["response"]["status"].as_u64().unwrap_or(0)));
                }
                _ => {}
            }
        }
        Ok(traffic)
    }

    /// The page's console messages: errors and violations of its content security policy.
    pub async fn complaints(&self) -> anyhow::Result<Vec<String>> {
        let entries = self.post("/se/log", &json!({"type": "browser"})).await?;
        let serious = |entry: &&Value| entry["level"] == "SEVERE";
        let text = |entry: &Value| entry["message"].as_str().unwrap_or_default().to_owned();
        Ok(entries.as_array().into_iter().flatten().filter(serious).map(text).collect())
    }

    /// Waits until a script returns something that is neither false nor null.
    pub async fn until(&self, what: &str, script: &str) -> anyhow::Result<Value> {
        let answer = crate::eventually(what, || async {
            match self.run(script).await? {
                Value::Null | Value::Bool(false) => bail!("not yet"),
                answer => Ok(answer),
            }
        });
        match answer.await {
            Ok(answer) => Ok(answer),
            Err(error) => {
                let shown = self.run("return document.body.innerText").await.unwrap_or_default();
                Err(error).with_context(|| format!("the page shows: {}", shown.as_str().unwrap_or_default()))
            }
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if let Some(id) = self.driver.id() {
            let group = format!("-{id}");
            let _ = std::process::Command::new("kill").args(["-9", "--", &group]).status();
        }
    }
}
