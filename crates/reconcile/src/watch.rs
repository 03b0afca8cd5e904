//! A watch over one kind that never ends. The lines of its stream are taken apart here, once for all kinds; objects are handed on
//! as text, and only who takes them knows their type. That keeps the code of some sixty kinds small and decodes each object once.
//!
//! It begins with all objects: as events of the watch itself where the server offers that, otherwise by a list before the watch,
//! as client-go does.

mod frames;
mod list;
#[cfg(test)]
mod tests;

use std::io;
use std::time::Duration;

use http::HeaderValue;
use http::header::ACCEPT_ENCODING;
use kube::Client;
use kube::api::WatchParams;
use kube::core::Status;
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::DefaultBackoff;
use serde::Deserialize;

use self::frames::{Event, Frames};

/// The server ends a watch after this time, and it begins again where it was.
const WATCH_SECONDS: u32 = 290;
/// A stream that is silent for longer is dead.
const SILENCE: Duration = Duration::from_secs(295);
/// While all objects are streamed, a server that is silent for longer may not know that it was asked for them.
const LISTING_SILENCE: Duration = Duration::from_secs(20);
/// Whoever ends a watch at once may do so again.
const SHORT: Duration = Duration::from_secs(1);

/// What is watched: the path of a kind's list, and the selectors of those that count; empty for all.
#[derive(Default)]
pub struct Watched {
    pub kind: String,
    pub path: String,
    pub fields: String,
    pub labels: String,
}

pub enum Change<'a> {
    /// All objects follow, because the watch begins.
    Listing,
    Listed(&'a str),
    /// There are no others.
    Complete,
    Put(&'a str),
    Gone(&'a str),
}

pub trait Taker: Send {
    /// Takes a change and answers the object's revision. An object that it cannot read is left out.
    fn take(&mut self, change: Change<'_>) -> serde_json::Result<u64>;

    /// Hears why a watch ended that is tried again.
    fn failed(&mut self, watched: &Watched, error: &str) {
        tracing::warn!(kind = watched.kind, error, "watch failed; retrying");
    }
}

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Refused(#[from] kube::Error),
    #[error("{}", .0.message)]
    Ended(Box<Status>),
    #[error(transparent)]
    Broken(#[from] io::Error),
    #[error("the stream is silent")]
    Silent,
    #[error(
        "the first bookmark does not end the list of initial events: the server does not support sendInitialEvents"
    )]
    NoEnd,
    #[error("the stream ended before all objects had come")]
    Cut,
    #[error("cannot decode watch event: {0}")]
    Unreadable(serde_json::Error),
    #[error("an event of more than {} MiB", frames::FRAME_MAX >> 20)]
    TooLong,
    #[error("a list that cannot be read: {0}")]
    UnreadableList(serde_json::Error),
    #[error("the watch ended immediately")]
    Short,
}

impl Failure {
    fn status(&self) -> Option<&Status> {
        match self {
            Failure::Refused(kube::Error::Api(status)) | Failure::Ended(status) => Some(status),
            _ => None,
        }
    }

    /// Whether the server does not know where the watch was, no longer or not yet.
    fn is_expired(&self) -> bool {
        self.status().is_some_and(|status| status.code == 410 || is_too_large(status))
    }

    /// How to ask for all objects after they could not be streamed; none where asking again is as good.
    fn instead(&self) -> Option<Way> {
        match self {
            // An older server, or one without WatchList, which says so or does not know the parameter and leaves it out.
            Failure::NoEnd => Some(Way::List),
            Failure::Silent | Failure::Cut => Some(Way::ListOnce),
            _ => match self.status()?.code {
                400 | 422 => Some(Way::List),
                // Who may not ask, or asks too much, or asks a server that is not there, gets no list either.
                401 | 408 | 410 | 429 | 502..=504 => None,
                // Such as a storage that cannot tell how far it is.
                _ => Some(Way::ListOnce),
            },
        }
    }
}

/// Whether a watch wants to go on behind what the API server knows, as after a snapshot was restored. Waiting would be in vain.
fn is_too_large(status: &Status) -> bool {
    let mut causes = status.details.iter().flat_map(|details| &details.causes);
    status.code == 504 && causes.any(|cause| cause.reason == "ResourceVersionTooLarge")
}

/// How all objects are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// As events of the watch itself, so that no list is ever held in one piece.
    Stream,
    /// By a list this time: why the stream failed may pass.
    ListOnce,
    /// By lists from now on, if the server gives one: it does not offer the stream.
    List,
}

impl Way {
    /// What becomes of it when all objects have come, or could not be had.
    fn after(self, complete: bool) -> Way {
        match self {
            Way::List if complete => Way::List,
            _ => Way::Stream,
        }
    }
}

/// Follows the kind until it is dropped.
pub async fn follow(client: Client, watched: Watched, taker: &mut dyn Taker) {
    let mut following = Following { client, watched, position: None, way: Way::Stream, heard: false };
    let mut backoff = DefaultBackoff::default();
    loop {
        let began = tokio::time::Instant::now();
        following.heard = false;
        let streams = following.position.is_none() && following.way == Way::Stream;
        let failure = match following.go_on(taker).await {
            Ok(()) if following.heard && following.position.is_none() => Some(Failure::Cut),
            Ok(()) if following.heard || began.elapsed() >= SHORT => None,
            Ok(()) => Some(Failure::Short),
            // The server went away; another may be there already.
            Err(Failure::Broken(_)) if following.heard => None,
            Err(failure) => Some(failure),
        };
        if following.heard {
            backoff.reset();
        }
        let Some(failure) = failure else { continue };
        if streams && following.position.is_none() && following.lists_instead(&failure) {
            continue;
        }
        if failure.is_expired() {
            following.position = None;
        }
        taker.failed(&following.watched, &failure.to_string());
        tokio::time::sleep(backoff.next().unwrap_or(SHORT)).await;
    }
}

struct Following {
    client: Client,
    watched: Watched,
    /// Up to where everything is known.
    position: Option<u64>,
    way: Way,
    /// Whether the server has said anything of use since the last try began.
    heard: bool,
}

#[derive(Deserialize)]
struct Bookmark {
    #[serde(default)]
    metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
}

impl Bookmark {
    fn ends_list(&self) -> bool {
        self.metadata.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(INITIAL_END))
    }

    fn revision(&self) -> Option<u64> {
        self.metadata.resource_version.as_deref()?.parse().ok()
    }
}

const INITIAL_END: &str = "k8s.io/initial-events-end";

impl Following {
    /// Lists where it must, and watches until the watch ends.
    async fn go_on(&mut self, taker: &mut dyn Taker) -> Result<(), Failure> {
        if self.position.is_none() && self.way != Way::Stream {
            let listed = list::list(&self.client, &self.watched, taker).await;
            self.way = self.way.after(listed.is_ok());
            self.position = Some(listed?);
            self.heard = true;
        }
        self.watch(taker).await
    }

    /// After all objects could not be streamed: whether the next try asks for a list, at once.
    fn lists_instead(&mut self, failure: &Failure) -> bool {
        let Some(way) = failure.instead() else { return false };
        tracing::info!(kind = self.watched.kind, error = %failure, "cannot stream the initial list over the watch; listing objects instead");
        self.way = way;
        true
    }

    /// One watch until its end: from its beginning with all objects, or from a position.
    async fn watch(&mut self, taker: &mut dyn Taker) -> Result<(), Failure> {
        let stream = Box::pin(self.client.request_stream(request(&self.watched, self.position)?).await?);
        let mut frames = Frames::new(stream);
        let mut listing = self.position.is_none();
        if listing {
            _ = taker.take(Change::Listing);
        }
        loop {
            let silence = if listing { LISTING_SILENCE } else { SILENCE };
            let read = tokio::time::timeout(silence, frames.more()).await;
            if !read.map_err(|_| Failure::Silent)?? {
                return Ok(());
            }
            while let Some(event) = frames.next()? {
                self.heard = true;
                self.take(event, &mut listing, taker)?;
            }
        }
    }

    fn take(&mut self, event: Event, listing: &mut bool, taker: &mut dyn Taker) -> Result<(), Failure> {
        let object = event.object;
        let change = match event.kind {
            "ADDED" | "MODIFIED" if *listing => Change::Listed(object),
            "ADDED" | "MODIFIED" => Change::Put(object),
            "DELETED" => Change::Gone(object),
            "BOOKMARK" => {
                let bookmark: Bookmark = serde_json::from_str(object).map_err(Failure::Unreadable)?;
                if *listing {
                    // Servers that stream all objects send no bookmark before the one that ends them.
                    if !bookmark.ends_list() {
                        return Err(Failure::NoEnd);
                    }
                    _ = taker.take(Change::Complete);
                }
                *listing = false;
                self.position = bookmark.revision().or(self.position);
                return Ok(());
            }
            _ => return Err(Failure::Ended(serde_json::from_str(object).map_err(Failure::Unreadable)?)),
        };
        match taker.take(change) {
            Ok(revision) if !*listing && revision > 0 => self.position = Some(revision),
            Ok(_) => {}
            Err(error) => tracing::warn!(kind = self.watched.kind, %error, "skipping object that cannot be decoded"),
        }
        Ok(())
    }
}

fn request(watched: &Watched, position: Option<u64>) -> Result<http::Request<Vec<u8>>, kube::Error> {
    let mut params = WatchParams::default().timeout(WATCH_SECONDS);
    if !watched.fields.is_empty() {
        params = params.fields(&watched.fields);
    }
    if !watched.labels.is_empty() {
        params = params.labels(&watched.labels);
    }
    let from = match position {
        Some(revision) => revision.to_string(),
        None => {
            params = params.initial_events();
            "0".to_owned()
        }
    };
    let mut request =
        kube::core::Request::new(watched.path.as_str()).watch(&params, &from).map_err(kube::Error::BuildRequest)?;
    request.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    Ok(request)
}
