//! An API server of a few fixed answers, and commands that run against it in the process of the test: what they ask, what they
//! print and their exit codes can be looked at.

use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::command::Command;
use crate::{commands, terminal};

#[derive(Clone, Default)]
pub(crate) struct Fake {
    /// By method and path. The last answer of a path is given again and again.
    answers: BTreeMap<String, VecDeque<(u16, String)>>,
}

/// What a command asked.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// `GET /api/v1/pods`.
    pub line: String,
    pub query: Vec<(String, String)>,
    pub content_type: String,
    pub body: Value,
}

impl Request {
    /// The value of a parameter; empty where it was not sent.
    pub(crate) fn query(&self, name: &str) -> &str {
        self.query.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value)
    }
}

/// A command that has ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub out: String,
    pub err: String,
    pub code: i32,
    pub requests: Vec<Request>,
}

impl Ran {
    /// Methods and paths of what was asked, in order.
    pub(crate) fn lines(&self) -> Vec<&str> {
        self.requests.iter().map(|request| request.line.as_str()).collect()
    }

    /// The only request of that method and path.
    pub(crate) fn request(&self, line: &str) -> &Request {
        let found: Vec<&Request> = self.requests.iter().filter(|request| request.line == line).collect();
        assert_eq!(found.len(), 1, "{line} in {:?}", self.lines());
        found[0]
    }
}

impl Fake {
    /// With the namespace that commands work in, which they look for where an object is missing.
    pub(crate) fn new() -> Fake {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}});
        Fake::default().answer("GET /api/v1/namespaces/default", namespace)
    }

    pub(crate) fn answer(self, line: &str, body: Value) -> Fake {
        self.answer_text(line, 200, &body.to_string())
    }

    /// A refusal with a Status.
    pub(crate) fn refuse(self, line: &str, code: u16, reason: &str, message: &str) -> Fake {
        self.answer_text(line, code, &status(code, reason, message).to_string())
    }

    pub(crate) fn answer_text(mut self, line: &str, code: u16, body: &str) -> Fake {
        self.answers.entry(line.into()).or_default().push_back((code, body.into()));
        self
    }

    /// Objects of that collection, as a list and each by its name.
    pub(crate) fn objects(mut self, collection: &str, objects: &[Value]) -> Fake {
        let Some(first) = objects.first() else { return self };
        let kind = format!("{}List", first["kind"].as_str().unwrap_or_default());
        let list = json!({"apiVersion": first["apiVersion"], "kind": kind, "metadata": {"resourceVersion": "7"},
            "items": objects});
        self = self.answer(&format!("GET {collection}"), list);
        for object in objects {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            self = self.answer(&format!("GET {collection}/{name}"), object.clone());
        }
        self
    }

    pub(crate) fn run(self, line: &str) -> Ran {
        self.run_in(&commands::ROOT, line)
    }

    /// Runs a line against a root of its own.
    pub(crate) fn run_in(self, root: &'static Command, line: &str) -> Ran {
        let server = Server::start(self);
        let folder = tempfile::tempdir().expect("a folder");
        let config = folder.path().join("config");
        let text = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": server.address}}],
            "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        });
        std::fs::write(&config, text.to_string()).expect("a kubeconfig");
        let mut words = vec![format!("--kubeconfig={}", config.display())];
        words.push(format!("--cache-dir={}", folder.path().join("cache").display()));
        words.extend(split(line));
        let (code, out, err) = terminal::captured::during(|| crate::run_line(root, words));
        Ran { out, err, code, requests: server.stop() }
    }
}

/// Words as a shell makes them, with `'` and `"` around what belongs together.
fn split(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for letter in line.chars() {
        match quote {
            Some(end) if letter == end => quote = None,
            None if letter == '\'' || letter == '"' => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            None if letter.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    words
}

fn status(code: u16, reason: &str, message: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code, "reason": reason,
        "message": message, "metadata": {}, "details": {}})
}

struct Server {
    address: String,
    requests: Arc<Mutex<Vec<Request>>>,
    stopped: Arc<AtomicBool>,
}

impl Server {
    fn start(fake: Fake) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let (requests, stopped) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let (seen, ended) = (requests.clone(), stopped.clone());
        let answers = Arc::new(Mutex::new(fake.answers));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if ended.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                // A client may keep several connections open, so each has a thread.
                let (seen, answers) = (seen.clone(), answers.clone());
                std::thread::spawn(move || drop(serve(&stream, &seen, &answers)));
            }
        });
        Server { address: format!("http://{address}"), requests, stopped }
    }

    fn stop(self) -> Vec<Request> {
        self.stopped.store(true, Ordering::SeqCst);
        // The listener looks at the mark when it is woken.
        drop(TcpStream::connect(self.address.trim_start_matches("http://")));
        self.requests.lock().expect("the requests").clone()
    }
}

type Answers = Mutex<BTreeMap<String, VecDeque<(u16, String)>>>;

/// One request of a connection, which ends with it.
fn serve(stream: &TcpStream, seen: &Mutex<Vec<Request>>, answers: &Answers) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut first = String::new();
    reader.read_line(&mut first)?;
    let mut words = first.split_whitespace();
    let (method, url) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let (mut length, mut content_type) = (0, String::new());
    loop {
        let mut header = String::new();
        reader.read_line(&mut header)?;
        let Some((name, value)) = header.trim_end().split_once(": ") else { break };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.parse().unwrap_or_default(),
            "content-type" => content_type = value.to_string(),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let (path, query) = url.split_once('?').unwrap_or((url, ""));
    let line = format!("{method} {path}");
    let (code, text) = {
        let mut answers = answers.lock().expect("the answers");
        match answers.get_mut(&line) {
            Some(several) if several.len() > 1 => several.pop_front(),
            Some(last) => last.front().cloned(),
            None => None,
        }
        .unwrap_or_else(|| (404, not_found(path).to_string()))
    };
    let query = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
    let body = serde_json::from_slice(&body).unwrap_or_default();
    seen.lock().expect("the requests").push(Request { line, query, content_type, body });
    let mut stream = stream;
    let kind = if text.starts_with('{') { "application/json" } else { "text/plain" };
    write!(
        stream,
        "HTTP/1.1 {code} X\r\ncontent-type: {kind}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{text}",
        text.len()
    )
}

/// What an API server says of a name that it does not have, or of a path.
fn not_found(path: &str) -> Value {
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let (group, rest) = match parts[..] {
        ["api", _, "namespaces", _, ref rest @ ..] if rest.len() == 2 => ("", rest.to_vec()),
        ["api", _, ref rest @ ..] => ("", rest.to_vec()),
        ["apis", group, _, "namespaces", _, ref rest @ ..] => (group, rest.to_vec()),
        ["apis", group, _, ref rest @ ..] => (group, rest.to_vec()),
        _ => ("", Vec::new()),
    };
    match rest[..] {
        [plural, name] => {
            let resource = if group.is_empty() { plural.to_string() } else { format!("{plural}.{group}") };
            let mut status = status(404, "NotFound", &format!("{resource} {name:?} not found"));
            status["details"] = json!({"name": name, "group": group, "kind": plural});
            status
        }
        _ => status(404, "NotFound", "the server could not find the requested resource"),
    }
}

#[test]
fn words_are_split_as_a_shell_does() {
    assert_eq!(split("a 'b c' d=\"e 'f'\" ''"), ["a", "b c", "d=e 'f'", ""]);
}
