//! The members of an etcd cluster, one connection each. All calls go to one member while it answers; when it does
//! not, the next one is taken. Every call has a deadline.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;
use tonic::Status;

use super::Config;
use super::client::{Client, KeepAlive, Options};
use super::failure::Failure;
use super::patience::Patience;
use crate::StoreError;

/// A silent connection is asked for a sign of life this often; etcd allows no more than one in five seconds.
const KEEP_ALIVE: KeepAlive = KeepAlive { interval: Duration::from_secs(10), timeout: Duration::from_secs(10) };
/// The pause between two tries.
const RETRY_WAIT: Duration = Duration::from_millis(50);

/// One member, with its connection.
#[derive(Clone)]
pub(super) struct Member {
    pub endpoint: String,
    pub client: Client,
    id: u64,
}

/// Who is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Choice {
    asked: u64,
    /// The one before, where it was left because it is silent: nobody waits for its answers any longer.
    silent: Option<u64>,
}

pub(super) struct Cluster {
    options: Options,
    /// Never empty. The first is the nearest: it is asked whenever it serves.
    members: RwLock<Vec<Member>>,
    choice: watch::Sender<Choice>,
    suspicion: Notify,
    is_served: watch::Sender<bool>,
    ids: AtomicU64,
}

/// An answer to a call that changes something.
pub(super) struct Answer<T> {
    pub answer: T,
    /// An earlier try went unanswered, so what stands in the way now may be its effect.
    pub may_have_happened: bool,
}

impl Cluster {
    pub async fn new(config: &Config) -> Result<Cluster, StoreError> {
        let cluster = Cluster {
            options: options(config),
            members: RwLock::default(),
            choice: watch::Sender::new(Choice { asked: 0, silent: None }),
            suspicion: Notify::new(),
            is_served: watch::Sender::new(true),
            ids: AtomicU64::default(),
        };
        cluster.set_endpoints(&config.endpoints).await?;
        Ok(cluster)
    }

    /// From now on these are the members. Connections to those that stay are kept.
    pub async fn set_endpoints(&self, endpoints: &[String]) -> Result<(), StoreError> {
        if endpoints.is_empty() {
            return Err(StoreError::Other("no etcd endpoint is set".to_owned()));
        }
        let mut members = Vec::new();
        for endpoint in endpoints {
            let known = self.members.read().iter().find(|member| member.endpoint == *endpoint).cloned();
            members.push(match known {
                Some(member) => member,
                None => self.connect(endpoint)?,
            });
        }
        *self.members.write() = members;
        Ok(())
    }

    fn connect(&self, endpoint: &str) -> Result<Member, StoreError> {
        let client = Client::new(&[endpoint], &self.options)
            .map_err(|error| StoreError::Other(format!("etcd endpoint {endpoint}: {}", chain(&error))))?;
        Ok(Member { endpoint: endpoint.to_owned(), client, id: self.ids.fetch_add(1, Ordering::Relaxed) })
    }

    /// All of them, the nearest first.
    pub fn members(&self) -> Vec<Member> {
        self.members.read().clone()
    }

    /// The member to ask.
    pub fn member(&self) -> Member {
        let asked = self.choice.borrow().asked;
        let members = self.members.read();
        members.iter().find(|member| member.id == asked).unwrap_or(&members[0]).clone()
    }

    /// Draws the conclusion from what a call to a member came to.
    pub fn failed(&self, member: &Member, why: &Failure) {
        match why {
            Failure::NotDone(_) | Failure::Unknown(_) => self.turn_from(member, why),
            // The next one may be the leader that is gone.
            Failure::NoLeader | Failure::LeaderChanged(_) => self.suspect(),
            Failure::Compacted | Failure::Future | Failure::LeaseGone | Failure::Full(_) | Failure::Refused(_) => {}
        }
    }

    /// Turns to the next member, unless someone already did.
    fn turn_from(&self, failed: &Member, why: &Failure) {
        let next = {
            let members = self.members.read();
            let place = members.iter().position(|member| member.id == failed.id);
            members[place.map_or(0, |place| (place + 1) % members.len())].id
        };
        if self.turn(failed, Choice { asked: next, silent: None }) {
            tracing::warn!(endpoint = %failed.endpoint, error = ?why, "etcd endpoint failed; switching to the next");
        }
    }

    /// Turns to a member that is known to serve.
    pub(crate) fn turn_to(&self, next: &Member, from: &Member, is_silent: bool) {
        if self.turn(from, Choice { asked: next.id, silent: is_silent.then_some(from.id) }) {
            tracing::info!(endpoint = %next.endpoint, from = %from.endpoint, "switched to another etcd endpoint");
        }
    }

    fn turn(&self, from: &Member, to: Choice) -> bool {
        self.choice.send_if_modified(|choice| {
            let is_asked = choice.asked == from.id || self.members.read().iter().all(|one| one.id != choice.asked);
            let turns = is_asked && to.asked != from.id;
            if turns {
                *choice = to;
            }
            turns
        })
    }

    /// Comes back when another member is asked instead of this one.
    pub(crate) async fn turned_from(&self, member: &Member) {
        self.chosen(|choice| choice.asked != member.id).await;
    }

    /// Comes back when nobody expects this member to answer.
    async fn fell_silent(&self, member: &Member) {
        self.chosen(|choice| choice.silent == Some(member.id)).await;
    }

    async fn chosen(&self, wanted: impl FnMut(&Choice) -> bool) {
        if self.choice.subscribe().wait_for(wanted).await.is_err() {
            // The sender lives in `self`, so this does not happen; then nothing is chosen either.
            std::future::pending::<()>().await;
        }
    }

    /// Comes back when a call went unanswered for a while: someone should look whether the member is still there.
    pub(crate) async fn suspected(&self) {
        self.suspicion.notified().await;
    }

    pub fn suspect(&self) {
        self.suspicion.notify_one();
    }

    /// A call that may be made twice: tried until it is answered, every member at least once.
    pub async fn read<T, F, A>(&self, patience: Patience, call: F) -> Result<T, Failure>
    where
        F: Fn(Member) -> A,
        A: Future<Output = Result<T, Status>>,
    {
        let mut tries = patience.tries();
        loop {
            let result = self.once(tries.next_patience(), &call).await;
            let tried_all = tries.count >= self.members.read().len();
            match result {
                Err(Failure::NotDone(_) | Failure::NoLeader | Failure::LeaderChanged(_) | Failure::Unknown(_))
                    if !tried_all || tries.are_left() =>
                {
                    tokio::time::sleep(RETRY_WAIT).await
                }
                result => return result,
            }
        }
    }

    /// A call that changes something. Where it may be made twice, because its own effect breaks its condition for good, it is
    /// also tried again when it may have had that effect, and then says so.
    pub async fn write<T, F, A>(&self, patience: Patience, twice: bool, call: F) -> Result<Answer<T>, Failure>
    where
        F: Fn(Member) -> A,
        A: Future<Output = Result<T, Status>>,
    {
        let mut tries = if twice { patience } else { patience.in_one() }.tries();
        let mut may_have_happened = false;
        loop {
            let patience = tries.next_patience();
            let result = match timeout(patience, self.until_served()).await {
                Ok(()) => self.once(patience, &call).await,
                Err(_) => Err(Failure::NoLeader),
            };
            match result {
                Ok(answer) => return Ok(Answer { answer, may_have_happened }),
                Err(failure @ (Failure::NotDone(_) | Failure::NoLeader)) if !tries.are_left() => {
                    return Err(if may_have_happened {
                        Failure::Unknown(format!("one try had no answer, and the last one: {failure:?}"))
                    } else {
                        failure
                    });
                }
                Err(Failure::NotDone(_) | Failure::NoLeader) => {}
                Err(Failure::LeaderChanged(_) | Failure::Unknown(_)) if twice && tries.are_left() => {
                    may_have_happened = true;
                }
                Err(failure) => return Err(failure),
            }
            tokio::time::sleep(RETRY_WAIT).await;
        }
    }

    /// Comes back at once, unless no member is known to serve: what is handed to one now would be lost, and nobody could say
    /// whether it was.
    async fn until_served(&self) {
        // The sender lives in `self`.
        let _ = self.is_served.subscribe().wait_for(|is_served| *is_served).await;
    }

    /// Whether any member serves, as far as is known.
    pub(crate) fn set_served(&self, is_served: bool) {
        self.is_served.send_if_modified(|before| std::mem::replace(before, is_served) != is_served);
    }

    async fn once<T, F, A>(&self, patience: Duration, call: &F) -> Result<T, Failure>
    where
        F: Fn(Member) -> A,
        A: Future<Output = Result<T, Status>>,
    {
        let member = self.member();
        let result = tokio::select! {
            answered = timeout(patience, call(member.clone())) => match answered {
                Ok(result) => result.map_err(|error| Failure::of(error, &member.endpoint)),
                Err(_) => {
                    // Where to turn is for those to say who look at all members.
                    self.suspect();
                    return Err(Failure::Unknown(format!("{} did not answer in {patience:?}", member.endpoint)));
                }
            },
            () = self.fell_silent(&member) => Err(Failure::Unknown(format!("{} fell silent", member.endpoint))),
        };
        result.inspect_err(|why| self.failed(&member, why))
    }
}

fn options(config: &Config) -> Options {
    Options {
        ca: config.ca.clone(),
        cert: config.cert.clone(),
        key: config.key.clone(),
        connect_timeout: Some(config.connect_timeout),
        timeout: None,
        keep_alive: Some(KEEP_ALIVE),
        // A member cut off from the others must say so instead of showing us an old world.
        require_leader: true,
    }
}

/// An error with what caused it.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |error| error.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
