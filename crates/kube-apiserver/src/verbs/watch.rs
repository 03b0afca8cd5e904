//! `watch`: changes as they happen, in order. An event's bytes are made once, however many watch it.

mod bookmark;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use machinery::codec::protobuf;
use machinery::status::Status;
use serde_json::{Value, json};
use store::cache::{Change, Item, Watcher};
use store::{Revision, StoreError};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::get::REVISION_TIMEOUT;
use super::watch_options::{Begin, Options};
use crate::body::Body;
use crate::call::Call;
use crate::conversion::decode_stored;
use crate::filter::Filter;
use crate::negotiate::{Form, Media};
use crate::resources::Resource;
use crate::respond::{self, Reply};
use crate::table::{self, Include};
use crate::transcode::Transcoding;
use crate::write::{refuse_undecrypted, store_status};

/// How often an idle watch that wants them is sent a bookmark.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// A watch about to end gets one more, so that its client resumes from there.
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);
/// How many changes are taken at once.
const BATCH_MAX: usize = 256;
/// About how much of the first state is made at a time.
const PIECE_BYTES: usize = 128 * 1024;
/// Where the encodings of a change in protobuf begin; those in JSON stand before them.
const PROTOBUF_SLOT: u8 = 4;
/// Smaller events cost less to copy than to send by themselves.
const SHARED_BYTES_MIN: usize = 1024;

pub async fn watch(call: Call) -> Result<Reply, Status> {
    let filter = Filter::parse(&call.resource, &call.target.namespace, &call.target.name, &call.query)?;
    let options = Options::read(&call)?;
    let content_type = match call.answer.media {
        Media::Json => "application/json",
        Media::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
        Media::Yaml => {
            let message = "406: Not Acceptable\n\nAvailable representations: application/json;stream=watch, \
                           application/vnd.kubernetes.protobuf;stream=watch";
            return Err(Status::new(406, "NotAcceptable", message).with_empty_details());
        }
    };
    refuse_undecrypted(&call.resource, filter.key().unwrap_or(&filter.prefix))?;
    let (mut initial, watcher) = match begin(&call, &filter, &options.start).await? {
        Ok(begun) => begun,
        Err(expired) => {
            let event = encoded(&call, "ERROR", &expired.to_value());
            return Ok(respond::bytes_reply(200, content_type, event));
        }
    };
    let ends = Instant::now() + options.lifetime;
    let gauge = call.app.metrics.watching(call.resource.kind.plural);
    let interest = call.app.flow.watches.begin(call.resource.kind.plural, &call.target, &call.query);
    // A token of its own: thousands of watches that look at one would wait for each other.
    let stopping = call.app.health.stopping.child_token();
    let ahead = match &initial {
        Some((items, _)) if call.resource.conversion.asks_others() => {
            call.app.offload.run(convert(&call, items.as_slice())).await?
        }
        _ => HashMap::new(),
    };
    if let Some((items, _)) = initial.as_mut().filter(|_| filter.is_late()) {
        keep_meant(items, &filter, &ahead);
    }
    let stream = Stream {
        transcoding: Transcoding::of(&call, &call.resource),
        ahead,
        call,
        filter,
        watcher,
        options,
        initial,
        ends,
        columns_sent: false,
        changes: Vec::new(),
        ready: VecDeque::new(),
        stopping,
        _gauge: gauge,
        _interest: interest,
    };
    // Behind a pointer: it is moved several times for every piece, and moving all of it cost as much as to encrypt the piece.
    let pieces = futures::stream::unfold(Some(Box::new(stream)), |stream| async move {
        let mut stream = stream?;
        let (piece, go_on) = stream.next().await;
        Some((piece, go_on.then_some(stream)))
    });
    Ok(respond::reply(200, content_type, Body::Stream(Box::pin(pieces))))
}

/// What is still to be sent of the state that comes first, and its revision.
type Initial = Option<(std::vec::IntoIter<Arc<Item>>, Revision)>;

/// Where the watch begins. The inner error is that its revision is too old, which is said within the stream.
async fn begin(call: &Call, filter: &Filter, start: &Begin) -> Result<Result<(Initial, Watcher), Status>, Status> {
    let state = call.resource.state()?;
    match *start {
        Begin::State(at_least) => {
            match at_least {
                Some(revision) => call.app.cache.wait_for(revision, REVISION_TIMEOUT).await.map_err(store_status)?,
                None => {
                    call.app.cache.fresh().await.map_err(store_status)?;
                }
            }
            let (items, revision, watcher) = list_and_watch(&call.resource, state, filter);
            Ok(Ok((Some((items.into_iter(), revision)), watcher)))
        }
        Begin::Now => {
            call.app.cache.fresh().await.map_err(store_status)?;
            Ok(Ok((None, state.list_and_watch(filter.scope()).1)))
        }
        Begin::After(revision) => {
            // Ahead of this server: wait for it to be reached, then begin there. What is never reached, as after a snapshot was
            // restored, is said: who waited in silence would miss what happens until then.
            call.app.cache.wait_for(revision, REVISION_TIMEOUT).await.map_err(store_status)?;
            match state.watch(revision, filter.scope()) {
                Ok(watcher) => Ok(Ok((None, watcher))),
                Err(StoreError::Compacted { wanted, oldest }) => {
                    Ok(Err(Status::expired(format!("too old resource version: {wanted} ({oldest})"))))
                }
                Err(error) => Err(store_status(error)),
            }
        }
    }
}

/// The objects that are meant, and what becomes of them from there on.
fn list_and_watch(
    resource: &Resource,
    state: &store::cache::Resource,
    filter: &Filter,
) -> (Vec<Arc<Item>>, Revision, Watcher) {
    let indexed = filter.indexed(resource).and_then(|_| state.having_and_watch(filter.scope()));
    if let Some((revision, mut items, watcher)) = indexed {
        items.retain(|item| filter.matches(item));
        return (items, revision, watcher);
    }
    let (snapshot, watcher) = state.list_and_watch(filter.scope());
    let from: Arc<str> = filter.prefix.as_str().into();
    let range = snapshot.items.range(from..).take_while(|(key, _)| key.starts_with(&filter.prefix));
    let items = range.filter(|(_, item)| filter.matches(item)).map(|(_, item)| item.clone()).collect();
    (items, snapshot.revision, watcher)
}

/// One client's stream.
struct Stream {
    call: Call,
    filter: Filter,
    watcher: Watcher,
    options: Options,
    initial: Initial,
    ends: Instant,
    columns_sent: bool,
    transcoding: Option<Transcoding>,
    changes: Vec<Arc<Change>>,
    /// Objects that a webhook has brought into the version that was asked for, by key and revision.
    ahead: Ahead,
    /// Pieces that wait to be sent.
    ready: VecDeque<Bytes>,
    stopping: CancellationToken,
    _gauge: crate::metrics::Gauge,
    _interest: Option<crate::flowcontrol::Interest>,
}

impl Stream {
    /// The next piece of the stream, and whether more follows.
    async fn next(&mut self) -> (Bytes, bool) {
        if let Some((items, revision)) = self.initial.take() {
            // Others get their turn between two pieces, however fast the client takes them.
            tokio::task::yield_now().await;
            let piece = self.initial_piece(items, revision);
            if !piece.is_empty() {
                return (piece, true);
            }
        }
        if let Some(piece) = self.ready.pop_front() {
            return (piece, true);
        }
        loop {
            let now = Instant::now();
            // A stream that always has something to send ends here.
            if self.stopping.is_cancelled() || now >= self.ends {
                return (Bytes::new(), false);
            }
            let last = self.ends.checked_sub(BOOKMARK_BEFORE_END).filter(|last| *last > now && self.options.bookmarks);
            let wake_at = last.map_or(self.ends, |last| last.min(now + BOOKMARK_EVERY));
            self.changes.clear();
            tokio::select! {
                // In this order: where changes are there, timers and the shutdown are not enlisted with.
                biased;
                alive = self.watcher.next_batch(BATCH_MAX, &mut self.changes) => {
                    if let Err(status) = self.convert_ahead().await {
                        return (encoded(&self.call, "ERROR", &status.to_value()), false);
                    }
                    self.batch();
                    match self.ready.pop_front() {
                        Some(piece) => return (piece, true),
                        None if !alive => return (Bytes::new(), false),
                        None => {}
                    }
                }
                // As upstream: whoever watches goes on at another server, or at this one when it is back.
                () = self.stopping.cancelled() => return (Bytes::new(), false),
                () = tokio::time::sleep_until(wake_at) => {
                    let over = Instant::now() >= self.ends;
                    let mut out = BytesMut::new();
                    if last.is_some() {
                        self.put_bookmark(&mut out, self.watcher.revision(), false);
                    }
                    if over || !out.is_empty() {
                        return (out.freeze(), !over);
                    }
                }
            }
        }
    }

    /// What the changes at hand need of a webhook, in one go.
    async fn convert_ahead(&mut self) -> Result<(), Status> {
        if !self.call.resource.conversion.asks_others() {
            return Ok(());
        }
        let items = self.changes.iter().flat_map(|change| [Some(&change.item), change.previous.as_ref()]);
        let items: Vec<Arc<Item>> = items.flatten().cloned().collect();
        self.ahead = convert(&self.call, &items).await?;
        Ok(())
    }

    /// The next part of the first state: however large that is, one piece is in memory.
    fn initial_piece(&mut self, mut items: std::vec::IntoIter<Arc<Item>>, revision: Revision) -> Bytes {
        let mut out = BytesMut::new();
        while out.len() < PIECE_BYTES {
            let Some(item) = items.next() else {
                if self.options.mark_initial_end {
                    self.put_bookmark(&mut out, revision, true);
                }
                return out.freeze();
            };
            self.put(&mut out, "ADDED", &item);
        }
        self.initial = Some((items, revision));
        out.freeze()
    }

    /// Makes pieces of the changes at hand. Large events are sent as they are, so that all watchers share their bytes
    /// however many wait; small ones are put together.
    fn batch(&mut self) {
        let mut changes = std::mem::take(&mut self.changes);
        let mut joined = BytesMut::new();
        for change in changes.drain(..) {
            match self.frame(&change) {
                Some(frame) if frame.len() >= SHARED_BYTES_MIN => {
                    if !joined.is_empty() {
                        self.ready.push_back(joined.split().freeze());
                    }
                    self.ready.push_back(frame);
                }
                Some(frame) => joined.put_slice(&frame),
                None => {}
            }
        }
        if !joined.is_empty() {
            self.ready.push_back(joined.freeze());
        }
        self.changes = changes;
    }

    fn matches(&self, item: &Item) -> bool {
        self.filter.matches(item)
            && (!self.filter.is_late()
                || self.ahead.get(&known_as(item)).is_some_and(|object| self.filter.matches_converted(object)))
    }

    /// What this client sees of a change, if anything: an object that begins to match is added, one that ceases to
    /// match is deleted.
    fn frame(&mut self, change: &Change) -> Option<Bytes> {
        let now = !change.deleted && self.matches(&change.item);
        let before = change.previous.as_ref().is_some_and(|item| self.matches(item));
        let (slot, event) = match (before, now) {
            (false, true) => (0, "ADDED"),
            (true, true) => (1, "MODIFIED"),
            (true, false) if change.deleted => (2, "DELETED"),
            (true, false) => (3, "DELETED"),
            (false, false) => return None,
        };
        // One that ceased to match is shown as it last matched, at the revision of the change.
        let item = match (slot, &change.previous) {
            (3, Some(previous)) => previous,
            _ => &change.item,
        };
        if self.takes_bytes(item) {
            return Some(change.encoding(slot, || frame(event, &respond::spliced(&item.value, change.revision.0))));
        }
        if let Some(transcoding) = self.transcoding.as_ref().filter(|transcoding| transcoding.is_whole())
            && self.call.resource.conversion.as_stored(item.revision.0)
        {
            let made = || transcoded(transcoding, event, item, change.revision).unwrap_or_default();
            let shared = change.encoding(PROTOBUF_SLOT + slot, made);
            if !shared.is_empty() {
                return Some(shared);
            }
        }
        self.own_frame(event, item, change.revision)
    }

    /// An event made for this client alone.
    fn own_frame(&mut self, event: &str, item: &Item, revision: Revision) -> Option<Bytes> {
        let answer = &self.call.answer;
        if let Some(transcoding) = &self.transcoding
            && self.call.resource.conversion.as_stored(item.revision.0)
            && let Some(frame) = transcoded(transcoding, event, item, revision)
        {
            return Some(frame);
        }
        // The garbage collector follows the metadata of every kind; decoding whole objects for it cost a fifth of a create.
        if answer.media == Media::Json
            && answer.form == Form::Metadata
            && self.call.resource.conversion.as_stored(item.revision.0)
        {
            let metadata = respond::metadata_alone(&item.value, answer.meta_version)?;
            return Some(frame(event, &respond::spliced(&metadata, revision.0)));
        }
        let object = self.object(item, revision)?;
        Some(encoded(&self.call, event, &object))
    }

    /// Whether the client takes the stored bytes as they are.
    fn takes_bytes(&self, item: &Item) -> bool {
        let answer = &self.call.answer;
        answer.media == Media::Json
            && answer.form == Form::Object
            && self.call.resource.conversion.as_stored(item.revision.0)
    }

    fn put(&mut self, out: &mut BytesMut, event: &str, item: &Item) {
        if self.takes_bytes(item) {
            out.put_slice(&frame(event, &item.encoded()));
            return;
        }
        if let Some(frame) = self.own_frame(event, item, item.revision) {
            out.put_slice(&frame);
        }
    }

    /// The object in the form and version that was asked for.
    fn object(&mut self, item: &Item, revision: Revision) -> Option<Value> {
        let resource: &Resource = &self.call.resource;
        let object = match self.ahead.get(&known_as(item)) {
            Some(converted) => {
                let mut object = converted.clone();
                object["metadata"]["resourceVersion"] = revision.to_string().into();
                object
            }
            None => resource.conversion.to_requested(decode_stored(&item.value, revision.0).ok()?),
        };
        let version = self.call.answer.meta_version;
        Some(match self.call.answer.form {
            Form::Object => object,
            Form::Metadata => table::partial_metadata(object, version),
            Form::Table => {
                let first = !std::mem::replace(&mut self.columns_sent, true);
                let meta = json!({"resourceVersion": revision.to_string()});
                let row =
                    table::row(resource, &object, Include::from(&self.call.query), version, self.call.app.clock.now());
                table::whole(resource, meta, vec![row], version, first)
            }
        })
    }

    fn put_bookmark(&self, out: &mut BytesMut, revision: Revision, initial_end: bool) {
        let object = bookmark::object(&self.call.resource.kind, self.call.answer.form, revision, initial_end);
        out.put_slice(&encoded(&self.call, "BOOKMARK", &object));
    }
}

/// Of the first state what is meant once it is converted.
fn keep_meant(items: &mut std::vec::IntoIter<Arc<Item>>, filter: &Filter, ahead: &Ahead) {
    let meant = |item: &Arc<Item>| ahead.get(&known_as(item)).is_some_and(|object| filter.matches_converted(object));
    *items = std::mem::take(items).filter(meant).collect::<Vec<_>>().into_iter();
}

type Ahead = HashMap<(Arc<str>, u64), Value>;

fn known_as(item: &Item) -> (Arc<str>, u64) {
    (item.key.clone(), item.revision.0)
}

/// Those items as a webhook converts them. One that cannot be decoded is left out.
async fn convert(call: &Call, items: &[Arc<Item>]) -> Result<Ahead, Status> {
    let decoded = items.iter().filter_map(|item| {
        let object = decode_stored(&item.value, item.revision.0).ok()?;
        Some((known_as(item), object))
    });
    let (keys, objects): (Vec<_>, Vec<_>) = decoded.unzip();
    let shown = call.resource.conversion.show_all(&call.app, objects).await?;
    Ok(keys.into_iter().zip(shown).collect())
}

/// An event in the media type of the stream.
fn encoded(call: &Call, event: &str, object: &Value) -> Bytes {
    let bytes = (call.answer.media == Media::Protobuf).then(|| respond::protobuf_of(object)).flatten();
    match bytes {
        Some(object) => protobuf::encode_watch_event(event, &object).into(),
        None => frame(event, object.to_string().as_bytes()),
    }
}

fn transcoded(transcoding: &Transcoding, event: &str, item: &Item, revision: Revision) -> Option<Bytes> {
    let object = transcoding.object(&item.value, revision.0)?;
    Some(protobuf::encode_watch_event(event, &object).into())
}

fn frame(event: &str, object: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(object.len() + 32);
    out.extend_from_slice(b"{\"type\":\"");
    out.extend_from_slice(event.as_bytes());
    out.extend_from_slice(b"\",\"object\":");
    out.extend_from_slice(object);
    out.extend_from_slice(b"}\n");
    out.into()
}

#[cfg(test)]
mod tests;
