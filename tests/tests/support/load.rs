//! A steady load on a cluster, whose every moment is known: clients that write to the API with all servers' addresses, and
//! clients that ask pods through a Service. They run on threads inside the networks they ask from.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::Client;
use testkit::client::{Connection, Reply};
use testkit::machine::within;

pub const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// Who is not answered in this time asks another server.
const TRY_TIMEOUT: Duration = Duration::from_millis(1500);
const BETWEEN_TRIES: Duration = Duration::from_millis(20);
const BETWEEN_WRITES: Duration = Duration::from_millis(50);
/// Objects that a writer changes again and again, beside those that it makes.
const CHANGED: u64 = 8;
/// Nobody waits longer for a page; there is no second try.
const PAGE_TIMEOUT: Duration = Duration::from_secs(5);
const BETWEEN_PAGES: Duration = Duration::from_millis(30);

/// What a cluster must not lose: the object, its revision and what it held.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Acknowledged {
    pub revision: u64,
    pub value: u64,
}

#[derive(Default)]
pub struct Written {
    pub last: BTreeMap<String, Acknowledged>,
    moments: Vec<Instant>,
    unanswered: Vec<Instant>,
    /// What must not happen: a write that is gone, a revision that is not newer, an answer nobody expects.
    pub wrong: Vec<String>,
}

/// Writes until it is stopped, as one client after the other would: each write is tried until it is acknowledged.
pub struct Writer {
    written: Arc<Mutex<Written>>,
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Writer {
    pub fn start(network: &Path, name: &str, endpoints: Vec<Client>) -> Writer {
        let (written, stop) = (Arc::<Mutex<Written>>::default(), Arc::<AtomicBool>::default());
        let (network, name) = (network.to_owned(), name.to_owned());
        let mut client = Several { connections: endpoints.iter().map(|_| None).collect(), endpoints, current: 0 };
        let (log, stopped) = (written.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            let ran = within(&network, move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
                runtime.block_on(write(&name, &mut client, &log, &stopped));
                Ok(())
            });
            ran.expect("the writer runs inside the network");
        });
        Writer { written, stop, thread: Some(thread) }
    }

    pub fn written(&self) -> MutexGuard<'_, Written> {
        lock(&self.written)
    }

    /// Ends it, and answers what it knows.
    pub fn stop(mut self) -> Written {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the writer does not panic");
        }
        std::mem::take(&mut *lock(&self.written))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl Written {
    /// How many were acknowledged in that time, and how many tries had no answer.
    pub fn count(&self, from: Instant, to: Instant) -> (usize, usize) {
        let within = |all: &[Instant]| all.iter().filter(|moment| (from..to).contains(moment)).count();
        (within(&self.moments), within(&self.unanswered))
    }

    /// The longest time in which nothing was acknowledged, as far as it lies behind `from`.
    pub fn longest_silence(&self, from: Instant, to: Instant) -> Duration {
        let ends = self.moments.iter().filter(|moment| (from..to).contains(moment)).copied().chain([to]);
        let mut last = from;
        let mut longest = Duration::ZERO;
        for end in ends {
            longest = longest.max(end - last);
            last = end;
        }
        longest
    }
}

/// One client with the addresses of all servers. It stays with the one that answers.
struct Several {
    endpoints: Vec<Client>,
    connections: Vec<Option<Connection>>,
    current: usize,
}

impl Several {
    async fn ask(&mut self, method: &str, path: &str, body: &Value) -> Option<Reply> {
        let index = self.current;
        let asked = async {
            let mut connection = match self.connections[index].take() {
                Some(connection) => connection,
                None => self.endpoints[index].connection().await?,
            };
            let text = if body.is_null() { String::new() } else { body.to_string() };
            let reply = connection.send(method, path, "application/json", text).await?;
            self.connections[index] = Some(connection);
            anyhow::Ok(reply)
        };
        match tokio::time::timeout(TRY_TIMEOUT, asked).await {
            Ok(Ok(reply)) if reply.code < 500 && reply.code != 429 => Some(reply),
            _ => {
                self.current = (index + 1) % self.endpoints.len();
                tokio::time::sleep(BETWEEN_TRIES).await;
                None
            }
        }
    }
}

async fn write(name: &str, client: &mut Several, log: &Mutex<Written>, stop: &AtomicBool) {
    let mut number = 0;
    while !stop.load(Ordering::Relaxed) {
        number += 1;
        let object = match number % 3 {
            0 => format!("{name}-{number}"),
            _ => format!("{name}-changed-{}", number % CHANGED),
        };
        while !stop.load(Ordering::Relaxed) && !try_once(client, log, &object, number).await {}
        tokio::time::sleep(BETWEEN_WRITES).await;
    }
}

/// Whether the write is acknowledged, or known to have happened although its answer was lost.
async fn try_once(client: &mut Several, log: &Mutex<Written>, name: &str, value: u64) -> bool {
    let known = lock(log).last.get(name).copied();
    let mut object =
        json!({"metadata": {"name": name, "labels": {"load": "yes"}}, "data": {"value": value.to_string()}});
    let path = format!("{CONFIG_MAPS}/{name}");
    let reply = match known {
        None => client.ask("POST", CONFIG_MAPS, &object).await,
        Some(known) => {
            object["metadata"]["resourceVersion"] = known.revision.to_string().into();
            client.ask("PUT", &path, &object).await
        }
    };
    let Some(reply) = reply else {
        lock(log).unanswered.push(Instant::now());
        return false;
    };
    match reply.code {
        200 | 201 => return lock(log).acknowledge(name, read(&reply.json())),
        // An earlier try of this write has happened, or it must be made on what there is.
        409 => {}
        code => lock(log).wrong.push(format!("{name}: answered {code}: {}", reply.text())),
    }
    let Some(found) = client.ask("GET", &path, &Value::Null).await else {
        lock(log).unanswered.push(Instant::now());
        return false;
    };
    let mut log = lock(log);
    match (found.code, known) {
        (200, known) => {
            let found = read(&found.json());
            if known.is_some_and(|known| found.revision < known.revision || found.value < known.value) {
                log.wrong.push(format!("{name}: acknowledged {known:?}, found {found:?}"));
            }
            if found.value == value {
                return log.acknowledge(name, found);
            }
            log.last.insert(name.to_owned(), found);
        }
        (404, Some(known)) => {
            log.wrong.push(format!("{name}: {known:?} was acknowledged and is gone"));
            log.last.remove(name);
        }
        (404, None) => {}
        (code, _) => log.wrong.push(format!("{name}: reading it answered {code}: {}", found.text())),
    }
    false
}

impl Written {
    fn acknowledge(&mut self, name: &str, new: Acknowledged) -> bool {
        self.moments.push(Instant::now());
        let newest = self.last.values().map(|one| one.revision).max().unwrap_or_default();
        if new.revision <= newest {
            self.wrong.push(format!("{name}: revision {} came after {newest}", new.revision));
        }
        self.last.insert(name.to_owned(), new);
        true
    }
}

/// What an object says of itself.
pub fn read(object: &Value) -> Acknowledged {
    let number = |value: &Value| value.as_str().and_then(|text| text.parse().ok()).unwrap_or_default();
    Acknowledged { revision: number(&object["metadata"]["resourceVersion"]), value: number(&object["data"]["value"]) }
}

/// When a page was asked for, and what went wrong.
type Asked = (Instant, Option<String>);

/// Asks for a page again and again, each time on a connection of its own, and never twice for the same.
pub struct Asker {
    asked: Arc<Mutex<Vec<Asked>>>,
    stop: Arc<AtomicBool>,
}

impl Asker {
    pub fn start(network: &Path, from: &str, address: SocketAddr) -> Asker {
        let asker = Asker { asked: Arc::default(), stop: Arc::default() };
        let (asked, stop) = (asker.asked.clone(), asker.stop.clone());
        let (network, from) = (network.to_owned(), from.to_owned());
        std::thread::spawn(move || {
            within(&network, move || {
                while !stop.load(Ordering::Relaxed) {
                    let began = Instant::now();
                    let failed = page(address).err().map(|error| format!("from {from}: {error}"));
                    lock(&asked).push((began, failed));
                    std::thread::sleep(BETWEEN_PAGES);
                }
                Ok(())
            })
        });
        asker
    }

    /// How many were asked for in that time, and what went wrong, with how long after its beginning.
    pub fn count(&self, from: Instant, to: Instant) -> (usize, Vec<String>) {
        let asked = lock(&self.asked);
        let within = asked.iter().filter(|(moment, _)| (from..to).contains(moment));
        let wrong = |(moment, failed): &Asked| {
            failed.as_ref().map(|failed| format!("{failed}, after {:.2} s", (*moment - from).as_secs_f64()))
        };
        (within.clone().count(), within.filter_map(wrong).collect())
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn page(address: SocketAddr) -> std::io::Result<()> {
    let mut stream = TcpStream::connect_timeout(&address, PAGE_TIMEOUT)?;
    stream.set_read_timeout(Some(PAGE_TIMEOUT))?;
    write!(stream, "GET / HTTP/1.1\r\nHost: web\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    match text.starts_with("HTTP/1.1 200 ") && text.contains("pod: ") {
        true => Ok(()),
        false => Err(std::io::Error::other(format!("answered {text:?}"))),
    }
}
