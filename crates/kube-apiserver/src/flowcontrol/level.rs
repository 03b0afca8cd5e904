//! One priority level at work: its seats and queues behind a short lock, and a wait that ends when a seat is free, when
//! it takes too long, or when the client is gone.

use std::sync::Arc;
use std::time::Duration;

use component_base::tasks;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::queues::{Arrival, Kind, Place, Queues, Refusal, Ticket, Width};
use super::shares::{Demand, Range, Share, Wish, smooth};

pub struct Level {
    pub name: String,
    began: Instant,
    state: Mutex<State>,
}

struct State {
    queues: Queues<oneshot::Sender<()>>,
    share: Share,
    range: Range,
    meter: Meter,
    demand: Demand,
}

/// What `/metrics` says of a level.
pub struct Seen {
    pub range: Range,
    pub limit: u32,
    pub seats: u32,
    pub waiting_seats: u32,
    pub demand: Demand,
}

impl Level {
    pub fn new(name: &str, spec: &Value, range: Range) -> Level {
        let state = State {
            queues: Queues::new(kind(spec), range.nominal),
            share: Share::read(spec),
            range,
            meter: Meter::default(),
            demand: Demand::default(),
        };
        Level { name: name.into(), began: Instant::now(), state: Mutex::new(state) }
    }

    /// Takes over what an operator changed; who waits and who runs goes on.
    pub fn change(&self, spec: &Value, range: Range) {
        let now = self.now();
        let mut state = self.state.lock();
        state.queues.change_kind(kind(spec));
        state.share = Share::read(spec);
        if state.range != range {
            state.range = range;
            state.queues.change_limit(now, range.nominal, &mut wake);
        }
    }

    pub fn set_limit(&self, limit: u32) {
        let now = self.now();
        self.state.lock().queues.change_limit(now, limit, &mut wake);
    }

    /// The most seats that one request is taken to need, by upstream's rule: a part of the level, and not so many that
    /// one flow's hand could hold it all.
    pub(crate) fn width_max(&self) -> u32 {
        let state = self.state.lock();
        let nominal = f64::from(state.range.nominal);
        match state.queues.kind() {
            Kind::Queue { hand, .. } => (nominal * 0.15).ceil().min(nominal / hand.max(1) as f64).max(1.0) as u32,
            Kind::Exempt | Kind::Reject => u32::MAX,
        }
    }

    /// What was wanted since this was last asked.
    pub fn wish(&self) -> Wish {
        let now = self.now();
        let mut state = self.state.lock();
        let (average, deviation, highest) = state.meter.take(now);
        let smoothed = smooth(state.demand.smoothed, average, deviation);
        state.demand = Demand { average, deviation, highest, smoothed };
        Wish { exempt: state.share.exempt, range: state.range, demand: state.demand }
    }

    pub fn seen(&self) -> Seen {
        let state = self.state.lock();
        Seen {
            range: state.range,
            limit: state.queues.limit(),
            seats: state.queues.seats(),
            waiting_seats: state.queues.waiting_seats(),
            demand: state.demand,
        }
    }

    /// Waits for a seat, for so long at most. `flow` is asked only where there are queues.
    pub async fn admit(
        self: &Arc<Level>,
        flow: u64,
        width: Width,
        wait_max: Duration,
        waits: impl FnOnce(),
    ) -> Result<Seat, Refusal> {
        let mut receiver = None;
        let arrival = {
            let waker = || {
                let (sender, woken) = oneshot::channel();
                receiver = Some(woken);
                sender
            };
            let now = self.now();
            let mut state = self.state.lock();
            let arrival = state.queues.arrive(now, flow, width, waker, &mut wake);
            state.measure(now);
            arrival
        };
        let (place, ticket) = match arrival {
            Arrival::Refused(refusal) => return Err(refusal),
            Arrival::Runs(place) => return Ok(self.seat(place, width)),
            Arrival::Waits(place, ticket) => (place, ticket),
        };
        waits();
        // Whatever ends the wait, also the end of the connection, gives the place back.
        let wait = Wait { level: self, place, ticket, width, done: false };
        match receiver {
            Some(woken) => match tokio::time::timeout(wait_max, woken).await {
                Ok(_) => Ok(wait.served()),
                Err(_) => wait.give_up(),
            },
            None => wait.give_up(),
        }
    }

    fn seat(self: &Arc<Level>, place: Place, width: Width) -> Seat {
        Seat { level: self.clone(), place, width, began: Instant::now() }
    }

    fn now(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    fn leave(&self, place: Place, ticket: Ticket) -> bool {
        let now = self.now();
        let mut state = self.state.lock();
        let left = state.queues.leave(now, place, ticket);
        state.measure(now);
        left
    }

    fn end(&self, place: Place, width: Width, ran: Duration) {
        let now = self.now();
        let mut state = self.state.lock();
        state.queues.end(now, place, width, ran.as_secs_f64(), &mut wake);
        state.measure(now);
    }

    fn rest(&self, place: Place, width: Width) {
        let now = self.now();
        let mut state = self.state.lock();
        state.queues.rest(now, place, width, &mut wake);
        state.measure(now);
    }
}

impl State {
    fn measure(&mut self, now: f64) {
        self.meter.set(now, self.queues.seats() + self.queues.waiting_seats());
    }
}

/// Who is gone meanwhile gives the seat back when the wait is dropped.
fn wake(waiting: oneshot::Sender<()>) {
    let _ = waiting.send(());
}

struct Wait<'a> {
    level: &'a Arc<Level>,
    place: Place,
    ticket: Ticket,
    width: Width,
    done: bool,
}

impl Wait<'_> {
    fn served(mut self) -> Seat {
        self.done = true;
        self.level.seat(self.place, self.width)
    }

    /// The seat may have come in the last moment.
    fn give_up(mut self) -> Result<Seat, Refusal> {
        self.done = true;
        if self.level.leave(self.place, self.ticket) {
            Err(Refusal::TimeOut)
        } else {
            Ok(self.level.seat(self.place, self.width))
        }
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        if !self.done && !self.level.leave(self.place, self.ticket) {
            drop(self.level.seat(self.place, self.width));
        }
    }
}

/// A request that runs. Dropping it frees its seats, those of the watchers a little later.
pub struct Seat {
    level: Arc<Level>,
    place: Place,
    width: Width,
    began: Instant,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.level.end(self.place, self.width, self.began.elapsed());
        if self.width.after == 0 {
            return;
        }
        let (level, place, width) = (self.level.clone(), self.place, self.width);
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => {
                runtime.spawn(tasks::boxed(async move {
                    tokio::time::sleep(Duration::from_secs_f64(width.after_seconds)).await;
                    level.rest(place, width);
                }));
            }
            Err(_) => level.rest(place, width),
        }
    }
}

fn kind(spec: &Value) -> Kind {
    let response = &spec["limited"]["limitResponse"];
    let number = |field: &str, usual: usize| {
        let given = response["queuing"][field].as_u64().and_then(|number| usize::try_from(number).ok());
        given.filter(|number| *number > 0).unwrap_or(usual)
    };
    match (spec["type"].as_str(), response["type"].as_str()) {
        (Some("Exempt"), _) => Kind::Exempt,
        (_, Some("Queue")) => Kind::Queue {
            queues: number("queues", 64),
            hand: number("handSize", 8),
            length_max: number("queueLengthLimit", 50),
        },
        _ => Kind::Reject,
    }
}

/// Average, deviation and peak of the seats that were wanted, over time.
#[derive(Default)]
struct Meter {
    value: u32,
    highest: u32,
    since: f64,
    seen: f64,
    sum: f64,
    squares: f64,
}

impl Meter {
    fn set(&mut self, now: f64, value: u32) {
        self.pass(now);
        self.value = value;
        self.highest = self.highest.max(value);
    }

    fn take(&mut self, now: f64) -> (f64, f64, u32) {
        self.pass(now);
        let seconds = (now - self.since).max(f64::EPSILON);
        let average = self.sum / seconds;
        let deviation = (self.squares / seconds - average * average).max(0.0).sqrt();
        let highest = self.highest;
        *self = Meter { value: self.value, highest: self.value, since: now, seen: now, sum: 0.0, squares: 0.0 };
        (average, deviation, highest)
    }

    fn pass(&mut self, now: f64) {
        let (seconds, value) = ((now - self.seen).max(0.0), f64::from(self.value));
        self.seen = now;
        self.sum += value * seconds;
        self.squares += value * value * seconds;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn level(seats: u32, queuing: Value) -> Arc<Level> {
        let spec = json!({"type": "Limited", "limited": {"limitResponse": {"type": "Queue", "queuing": queuing}}});
        Arc::new(Level::new("test", &spec, Range { nominal: seats, lower: seats, upper: seats }))
    }

    const WAIT: Duration = Duration::from_secs(15);

    #[tokio::test(start_paused = true)]
    async fn a_wait_ends_with_a_seat_or_with_its_time() {
        let level = level(1, json!({"queues": 1, "handSize": 1, "queueLengthLimit": 10}));
        let seat = level.admit(0, Width::ONE, WAIT, || panic!("it need not wait")).await.ok().unwrap();
        assert_eq!(level.admit(0, Width::ONE, WAIT, || {}).await.err(), Some(Refusal::TimeOut));
        let waiting = tokio::spawn({
            let level = level.clone();
            async move { level.admit(0, Width::ONE, WAIT, || {}).await.is_ok() }
        });
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(level.seen().waiting_seats, 1);
        drop(seat);
        assert!(waiting.await.unwrap());
        assert_eq!((level.seen().seats, level.seen().waiting_seats), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn who_goes_away_leaves_nothing_behind() {
        let level = level(1, json!({"queues": 1, "handSize": 1, "queueLengthLimit": 10}));
        let seat = level.admit(0, Width::ONE, WAIT, || {}).await.ok().unwrap();
        let short = Duration::from_millis(10);
        let gone = tokio::time::timeout(short, level.admit(0, Width::ONE, WAIT, || {})).await;
        assert!(gone.is_err());
        assert_eq!(level.seen().waiting_seats, 0);
        drop(seat);
        assert_eq!(level.seen().seats, 0);
        level.admit(0, Width::ONE, WAIT, || panic!("it need not wait")).await.ok().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn seats_of_watchers_are_freed_later() {
        let level = level(2, json!({"queues": 1, "handSize": 1, "queueLengthLimit": 10}));
        let width = Width { running: 1, after: 2, after_seconds: 0.01 };
        drop(level.admit(0, width, WAIT, || {}).await.ok());
        assert_eq!(level.seen().seats, 2);
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert_eq!(level.seen().seats, 0);
    }

    #[test]
    fn demand_is_measured_over_time() {
        let mut meter = Meter::default();
        meter.set(0.0, 10);
        meter.set(5.0, 0);
        assert_eq!(meter.take(10.0), (5.0, 5.0, 10));
        assert_eq!(meter.take(20.0), (0.0, 0.0, 0));
    }
}
