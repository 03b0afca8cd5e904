//! One question from packet to packet: hosts of the administrator first, then stub domains, then the cluster, then the world.
//! What is known is answered at once; what must be asked elsewhere is answered later.

use std::net::{IpAddr, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use arc_swap::ArcSwap;
use parking_lot::RwLock;
use rand::seq::SliceRandom;

use crate::cache::{Kept, Question};
use crate::custom::Custom;
use crate::forward::{Failure, Forwarder};
use crate::metrics::{Metrics, Source, Transport};
use crate::wire::{CLASS_INTERNET, Code, Data, Name, Query, Record, Section, Writer, kind, read_query, refusal};
use crate::zone::{Answer, Zone};

pub struct Resolver {
    zone: RwLock<Zone>,
    custom: ArcSwap<Custom>,
    /// Those of resolv.conf.
    upstreams: ArcSwap<Vec<SocketAddr>>,
    forwarder: Arc<Forwarder>,
    metrics: Arc<Metrics>,
    /// The cluster's own addresses of this service.
    service_addresses: Vec<IpAddr>,
    /// Until the cluster is known, nobody can say that a name of it does not exist.
    synced: AtomicBool,
}

/// What became of a packet.
pub enum Step {
    /// The answer is in the buffer; an empty one is not sent.
    Done(Source),
    Later(Pending),
}

/// A question whose answer must be fetched.
pub struct Pending {
    packet: Vec<u8>,
    question: Question,
    upstreams: Vec<SocketAddr>,
    /// Names that lead to the one that is asked for elsewhere.
    chain: Vec<Record>,
}

impl Resolver {
    pub fn new(zone: Zone, metrics: Arc<Metrics>, service_addresses: Vec<IpAddr>) -> Arc<Resolver> {
        let forwarder = Forwarder::new(metrics.clone());
        forwarder.set_own(service_addresses.clone());
        let (custom, upstreams) = (ArcSwap::default(), ArcSwap::default());
        let (zone, synced) = (RwLock::new(zone), AtomicBool::new(false));
        Arc::new(Resolver { zone, custom, upstreams, forwarder, metrics, service_addresses, synced })
    }

    /// Changes what is known of the cluster.
    pub fn change(&self, seconds: i64, change: impl FnOnce(&mut Zone)) {
        let mut zone = self.zone.write();
        change(&mut zone);
        zone.serial = seconds as u32;
    }

    pub(crate) fn set_synced(&self) {
        self.synced.store(true, Ordering::Relaxed);
    }

    pub fn is_synced(&self) -> bool {
        self.synced.load(Ordering::Relaxed)
    }

    pub(crate) fn set_custom(&self, custom: Custom) {
        self.custom.store(Arc::new(custom));
        self.forwarder.forget();
    }

    pub(crate) fn set_upstreams(&self, upstreams: Vec<SocketAddr>) {
        self.upstreams.store(Arc::new(upstreams));
        self.forwarder.forget();
    }

    /// Where we answer ourselves: asking there would go round in circles.
    pub(crate) fn set_own(&self, addresses: impl Iterator<Item = IpAddr>) {
        self.forwarder.set_own(self.service_addresses.iter().copied().chain(addresses).collect());
    }

    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    pub(crate) fn metrics_text(&self) -> String {
        self.metrics.text(self.forwarder.cached_counts())
    }

    /// Whatever the packet holds, this returns.
    pub fn begin(&self, packet: &[u8], transport: Transport, out: &mut Vec<u8>) -> Step {
        match catch_unwind(AssertUnwindSafe(|| self.decide(packet, transport, out))) {
            Ok(step) => step,
            Err(_) => {
                self.metrics.panicked();
                tracing::error!(packet = ?packet, "DNS query handler panicked");
                out.clear();
                Step::Done(Source::Nobody)
            }
        }
    }

    fn decide(&self, packet: &[u8], transport: Transport, out: &mut Vec<u8>) -> Step {
        let query = match read_query(packet) {
            Ok(query) => query,
            Err(why) => {
                refusal(out, packet, why);
                return Step::Done(Source::Nobody);
            }
        };
        let stream = transport == Transport::Stream;
        if query.edns.is_some_and(|edns| edns.version > 0) {
            query.reply(out, Code::BadVers);
            return Step::Done(Source::Nobody);
        }
        if query.class != CLASS_INTERNET || matches!(query.kind, kind::AXFR | kind::IXFR | kind::OPT) {
            query.reply(out, Code::Refused);
            return Step::Done(Source::Nobody);
        }
        let custom = self.custom.load();
        if let Some(records) = custom.hosts.answer(&query.name, query.kind) {
            write(out, &query, stream, records, &[]);
            return Step::Done(Source::Hosts);
        }
        let zone = self.zone.read();
        // A stub domain such as `local` does not take the cluster's own names away.
        let stub = custom
            .stub(&query.name)
            .filter(|stub| stub.zone.is_within(zone.domain()) || !query.name.is_within(zone.domain()));
        if let Some(stub) = stub {
            if let Some(records) = stub.hosts.answer(&query.name, query.kind) {
                write(out, &query, stream, records, &[]);
                return Step::Done(Source::Hosts);
            }
            return self.elsewhere(out, &query, stream, query.name.clone(), &stub.upstreams, Vec::new());
        }
        match zone.answer(&query.name, query.kind) {
            Answer::Records { answers, additional } => write(out, &query, stream, answers, &additional),
            Answer::NoData => deny(out, &query, stream, Code::NoError, &zone),
            Answer::NoName if !self.is_synced() => query.reply(out, Code::ServFail),
            Answer::NoName => deny(out, &query, stream, Code::NxDomain, &zone),
            Answer::Refused => query.reply(out, Code::Refused),
            Answer::Elsewhere => {
                let upstreams = self.upstreams_of(&custom, None);
                return self.elsewhere(out, &query, stream, query.name.clone(), &upstreams, Vec::new());
            }
            Answer::Alias { mut chain, target } => {
                let local = custom.hosts.answer(&target, query.kind);
                let stub = custom.stub(&target);
                let local = local.or_else(|| stub.and_then(|stub| stub.hosts.answer(&target, query.kind)));
                match local {
                    Some(records) => {
                        let named = records.into_iter().map(|record| Record { name: Some(target.clone()), ..record });
                        chain.extend(named);
                        write(out, &query, stream, chain, &[]);
                    }
                    None => {
                        let upstreams = self.upstreams_of(&custom, stub.map(|stub| &stub.upstreams));
                        return self.elsewhere(out, &query, stream, target, &upstreams, chain);
                    }
                }
            }
        }
        Step::Done(Source::Kubernetes)
    }

    fn upstreams_of(&self, custom: &Custom, stub: Option<&Vec<SocketAddr>>) -> Vec<SocketAddr> {
        match stub.or(custom.upstreams.as_ref()) {
            Some(upstreams) => upstreams.clone(),
            None => self.upstreams.load().to_vec(),
        }
    }

    fn elsewhere(
        &self,
        out: &mut Vec<u8>,
        query: &Query,
        stream: bool,
        name: Name,
        upstreams: &[SocketAddr],
        chain: Vec<Record>,
    ) -> Step {
        let (kind, dnssec_ok, checking_disabled) = (query.kind, query.dnssec_ok(), query.checking_disabled());
        let question = Question { name, kind, dnssec_ok, checking_disabled };
        let now = Instant::now();
        if let Some(kept) = self.forwarder.cached(&question, now) {
            self.hand_on(out, query, stream, &kept, chain, now);
            return Step::Done(Source::Cache);
        }
        Step::Later(Pending { packet: query.packet.to_vec(), question, upstreams: upstreams.to_vec(), chain })
    }

    /// Fetches the answer and writes it into the buffer.
    pub async fn finish(&self, pending: Pending, transport: Transport, out: &mut Vec<u8>) {
        let outcome = self.forwarder.ask(pending.question, &pending.upstreams).await;
        // It was read before.
        let Ok(query) = read_query(&pending.packet) else { return };
        let stream = transport == Transport::Stream;
        match outcome {
            Ok(kept) => self.hand_on(out, &query, stream, &kept, pending.chain, Instant::now()),
            Err(Failure::Busy) => query.reply(out, Code::Refused),
            Err(Failure::Unanswered) if pending.chain.is_empty() => query.reply(out, Code::ServFail),
            // As CoreDNS: the name is known, what it leads to is not.
            Err(Failure::Unanswered) => deny(out, &query, stream, Code::NoError, &self.zone.read()),
        }
    }

    /// What to say when too much is being fetched already.
    pub fn refuse(&self, pending: &Pending, out: &mut Vec<u8>) {
        if let Ok(query) = read_query(&pending.packet) {
            self.metrics.forward_rejected();
            query.reply(out, Code::Refused);
        }
    }

    fn hand_on(
        &self,
        out: &mut Vec<u8>,
        query: &Query,
        stream: bool,
        kept: &Kept,
        mut chain: Vec<Record>,
        now: Instant,
    ) {
        let seconds = kept.seconds_left(now);
        if chain.is_empty() {
            return query.relay(out, &kept.relayed, Some(seconds), stream);
        }
        for record in kept.relayed.address_records() {
            chain.push(Record { ttl: record.ttl.min(seconds), ..record });
        }
        write(out, query, stream, chain, &[]);
    }
}

/// Answers that are good: names first, in order, then addresses in any order, so that all of them get their share.
fn write(out: &mut Vec<u8>, query: &Query, stream: bool, mut answers: Vec<Record>, additional: &[Record]) {
    let is_address = |record: &Record| matches!(record.data, Data::A(_) | Data::Aaaa(_));
    let first = answers.iter().position(is_address).unwrap_or(answers.len());
    if answers.len() - first > 1 && answers[first..].iter().all(is_address) {
        answers[first..].shuffle(&mut rand::rng());
    }
    let mut writer = Writer::new(out, query, stream);
    let fit = answers.iter().all(|record| writer.add(Section::Answer, record));
    if fit {
        // Those that do not fit can be asked for.
        let _ = additional.iter().all(|record| writer.add(Section::Additional, record));
    }
    writer.finish(query, Code::NoError, true);
}

fn deny(out: &mut Vec<u8>, query: &Query, stream: bool, code: Code, zone: &Zone) {
    let mut writer = Writer::new(out, query, stream);
    writer.add(Section::Authority, &zone.authority(&query.name));
    writer.finish(query, code, true);
}
