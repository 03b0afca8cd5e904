//! The seats and queues of one priority level: who runs, who waits, who is refused, and who is next. Data in, data out;
//! the time is given.
//!
//! Queues are served fairly by virtual time, as upstream: it passes at the rate at which one busy queue would be served.
//! Each queue knows the virtual time at which its next request would begin; the one whose next request would end first is
//! next.

use std::collections::VecDeque;

use super::shard::deal;

/// How long a request is taken to run until it is known, in seconds.
const GUESSED_SECONDS: f64 = 0.003;
/// Of levels without queues.
const NO_QUEUE: usize = usize::MAX;

/// How many seats a request takes: first while it runs, then for a while for those who watch what it changed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Width {
    pub running: u32,
    pub after: u32,
    pub after_seconds: f64,
}

impl Width {
    pub const ONE: Width = Width { running: 1, after: 0, after_seconds: 0.0 };

    pub fn seats(&self) -> u32 {
        self.running.max(self.after).max(1)
    }

    /// In seats times seconds.
    fn work(&self, seconds: f64) -> f64 {
        f64::from(self.running) * seconds + f64::from(self.after) * self.after_seconds
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Exempt,
    /// Without queues: what does not fit is refused.
    Reject,
    Queue {
        queues: usize,
        hand: usize,
        length_max: usize,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    QueueFull,
    ConcurrencyLimit,
    TimeOut,
}

/// What becomes of a request that arrives.
#[derive(Debug, PartialEq, Eq)]
pub enum Arrival {
    Runs(Place),
    Waits(Place, Ticket),
    Refused(Refusal),
}

/// The queue a request belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place(usize);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(u64);

/// `T` is what a waiting request is woken by.
pub struct Queues<T> {
    kind: Kind,
    limit: u32,
    queues: Vec<Queue<T>>,
    running: u32,
    seats: u32,
    waiting: u32,
    waiting_seats: u32,
    /// Queues in which somebody runs or waits.
    busy: u32,
    virtual_time: f64,
    seen: f64,
    last_served: usize,
    arrivals: u64,
}

struct Queue<T> {
    waiting: VecDeque<Waiting<T>>,
    waiting_work: f64,
    running: u32,
    /// The virtual time at which the next request of this queue would begin.
    next: f64,
}

struct Waiting<T> {
    ticket: Ticket,
    width: Width,
    waker: T,
}

impl<T> Queues<T> {
    pub fn new(kind: Kind, limit: u32) -> Queues<T> {
        let mut queues = Queues {
            kind,
            limit,
            queues: Vec::new(),
            running: 0,
            seats: 0,
            waiting: 0,
            waiting_seats: 0,
            busy: 0,
            virtual_time: 0.0,
            seen: 0.0,
            last_served: 0,
            arrivals: 0,
        };
        queues.change_kind(kind);
        queues
    }

    pub fn kind(&self) -> Kind {
        self.kind
    }

    pub fn limit(&self) -> u32 {
        self.limit
    }

    pub fn seats(&self) -> u32 {
        self.seats
    }

    pub(crate) fn waiting_seats(&self) -> u32 {
        self.waiting_seats
    }

    /// More seats let more run at once; with fewer, those who run end first.
    pub(crate) fn change_limit(&mut self, now: f64, limit: u32, wake: &mut impl FnMut(T)) {
        self.pass(now);
        self.limit = limit;
        self.serve(wake);
    }

    /// Queues that are no longer dealt stay until they are empty: who waits in them keeps their turn.
    pub(crate) fn change_kind(&mut self, kind: Kind) {
        self.kind = kind;
        let wanted = match kind {
            Kind::Queue { queues, .. } => queues.max(1),
            Kind::Exempt | Kind::Reject => 0,
        };
        while self.queues.len() < wanted {
            self.queues.push(Queue { waiting: VecDeque::new(), waiting_work: 0.0, running: 0, next: 0.0 });
        }
        while self.queues.len() > wanted && self.queues.last().is_some_and(Queue::is_idle) {
            self.queues.pop();
        }
    }

    pub fn arrive(
        &mut self,
        now: f64,
        flow: u64,
        width: Width,
        waker: impl FnOnce() -> T,
        wake: &mut impl FnMut(T),
    ) -> Arrival {
        self.pass(now);
        let Kind::Queue { queues, hand, length_max } = self.kind else {
            if self.kind == Kind::Reject && !self.fits(width.seats()) {
                return Arrival::Refused(Refusal::ConcurrencyLimit);
            }
            self.begin(NO_QUEUE, width);
            return Arrival::Runs(Place(NO_QUEUE));
        };
        let index = self.choose(flow, queues.max(1), hand);
        let at_once = self.waiting == 0 && self.fits(width.seats());
        if !at_once && self.queues[index].waiting.len() >= length_max {
            return Arrival::Refused(Refusal::QueueFull);
        }
        if self.queues[index].is_idle() {
            self.busy += 1;
            self.queues[index].next = self.virtual_time;
        }
        if at_once {
            self.begin(index, width);
            return Arrival::Runs(Place(index));
        }
        self.arrivals += 1;
        let ticket = Ticket(self.arrivals);
        let queue = &mut self.queues[index];
        queue.waiting_work += width.work(GUESSED_SECONDS);
        queue.waiting.push_back(Waiting { ticket, width, waker: waker() });
        self.waiting += 1;
        self.waiting_seats += width.seats();
        self.serve(wake);
        Arrival::Waits(Place(index), ticket)
    }

    /// Ends the wait of a request that was not served. False where it was: then it runs, and must end.
    pub fn leave(&mut self, now: f64, place: Place, ticket: Ticket) -> bool {
        self.pass(now);
        let Some(queue) = self.queues.get_mut(place.0) else { return false };
        let Some(at) = queue.waiting.iter().position(|waiting| waiting.ticket == ticket) else { return false };
        let Some(gone) = queue.waiting.remove(at) else { return false };
        self.took(place.0, &gone.width);
        if self.queues[place.0].is_idle() {
            self.busy -= 1;
        }
        true
    }

    /// A request has run for so long. Where watchers of what it changed still have work, `rest` must be called when that
    /// is over.
    pub fn end(&mut self, now: f64, place: Place, width: Width, ran: f64, wake: &mut impl FnMut(T)) {
        self.pass(now);
        self.seats -= width.seats() - width.after;
        if let Some(queue) = self.queues.get_mut(place.0) {
            queue.next -= (GUESSED_SECONDS - ran) * f64::from(width.running);
        }
        match width.after {
            0 => self.ended(place, wake),
            _ => self.serve(wake),
        }
    }

    /// The work of watchers is over, too.
    pub fn rest(&mut self, now: f64, place: Place, width: Width, wake: &mut impl FnMut(T)) {
        self.pass(now);
        self.seats -= width.after;
        self.ended(place, wake);
    }

    fn ended(&mut self, place: Place, wake: &mut impl FnMut(T)) {
        self.running -= 1;
        if let Some(queue) = self.queues.get_mut(place.0) {
            queue.running -= 1;
            if queue.is_idle() {
                self.busy -= 1;
            }
        }
        self.serve(wake);
    }

    fn begin(&mut self, index: usize, width: Width) {
        self.running += 1;
        self.seats += width.seats();
        if let Some(queue) = self.queues.get_mut(index) {
            queue.running += 1;
            queue.next += width.work(GUESSED_SECONDS);
        }
    }

    /// A request that takes more than there is runs alone.
    fn fits(&self, seats: u32) -> bool {
        if seats > self.limit {
            return self.running == 0;
        }
        self.seats + seats <= self.limit
    }

    /// Of the flow's hand the queue with the least work; equal ones take turns.
    fn choose(&self, flow: u64, deck: usize, size: usize) -> usize {
        let (hand, size) = deal(flow, deck.min(self.queues.len()), size);
        let first = (self.arrivals % size as u64) as usize;
        let mut best = hand[first];
        for step in 1..size {
            let index = hand[(first + step) % size];
            if self.queues[index].waiting_work < self.queues[best].waiting_work {
                best = index;
            }
        }
        best
    }

    fn serve(&mut self, wake: &mut impl FnMut(T)) {
        while self.waiting > 0 {
            let Some(index) = self.next_queue() else { return };
            let Some(width) = self.queues[index].waiting.front().map(|waiting| waiting.width) else { return };
            if !self.fits(width.seats()) {
                return;
            }
            let Some(served) = self.queues[index].waiting.pop_front() else { return };
            self.took(index, &width);
            self.last_served = index;
            self.begin(index, width);
            wake(served.waker);
        }
    }

    /// The queue whose first request would end first in virtual time; among equals the next in turn.
    fn next_queue(&self) -> Option<usize> {
        let count = self.queues.len();
        let mut best: Option<(f64, usize)> = None;
        for step in 1..=count {
            let index = (self.last_served + step) % count;
            let queue = &self.queues[index];
            let Some(first) = queue.waiting.front() else { continue };
            let ends = queue.next + first.width.work(GUESSED_SECONDS);
            if best.is_none_or(|(earliest, _)| ends < earliest) {
                best = Some((ends, index));
            }
        }
        best.map(|(_, index)| index)
    }

    fn took(&mut self, index: usize, width: &Width) {
        self.waiting -= 1;
        self.waiting_seats -= width.seats();
        let queue = &mut self.queues[index];
        // Nothing of rounding stays behind.
        queue.waiting_work =
            if queue.waiting.is_empty() { 0.0 } else { queue.waiting_work - width.work(GUESSED_SECONDS) };
    }

    fn pass(&mut self, now: f64) {
        let seconds = (now - self.seen).max(0.0);
        self.seen = now;
        if self.busy > 0 {
            let served = f64::from((self.seats + self.waiting_seats).min(self.limit));
            self.virtual_time += seconds * served / f64::from(self.busy);
        }
    }
}

impl<T> Queue<T> {
    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.running == 0
    }
}
