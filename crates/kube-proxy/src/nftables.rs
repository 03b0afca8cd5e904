//! Writes the rules into the kernel through netlink, each change in one transaction, and takes over what is there.
//!
//! A table belongs to a family of addresses. What is in it is compared by its elements, and by a digest in each rule's
//! comment; the layout of sets and chains has a digest too, in the table's comment. Another layout is written anew as a
//! whole, in one transaction, so that no packet meets half of it.

mod encode;
mod expressions;
mod watch;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use nlink::netlink::nftables::{
    BaseChain, Chain as NftChain, FilterHook, NFT_MSG_NEWTABLE, NFTA_TABLE_NAME, NatHook, Priority, RawMessage,
    Rule as NftRule, Set, SetElement, Transaction,
};
use nlink::netlink::{Connection, Nftables};
use reconcile::Key as ObjectKey;

use crate::layout::{self, Chain, Hook};
use crate::model::{Change, Family, Key, Ledger, Value, digest};
use encode::{CLIENTS_PREFIX, Encoded, nft_family};
pub use watch::Watch;

/// `NLM_F_CREATE`.
const CREATE: u16 = 0x400;
/// Elements that go into one message, whose length is limited.
const ELEMENTS_PER_MESSAGE: usize = 200;
/// Elements that go into one transaction, which the kernel keeps in memory twice.
const ELEMENTS_PER_TRANSACTION: usize = 200_000;
/// The largest transaction.
const SEND_BYTES: usize = 256 << 20;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("open netlink: {0}")]
    Open(nlink::netlink::Error),
    #[error("set netlink socket buffer: {0}")]
    Room(std::io::Error),
    #[error("read nftables table {table}: {source}")]
    Read { table: String, source: nlink::netlink::Error },
    #[error("update nftables table {table}: {source}")]
    Write { table: String, source: nlink::netlink::Error },
}

/// What had to be done to make the kernel agree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Repaired {
    /// Tables that were written anew.
    pub tables: usize,
    pub chains: usize,
    pub elements: usize,
}

impl Repaired {
    pub fn is_nothing(&self) -> bool {
        *self == Repaired::default()
    }
}

pub struct Kernel {
    table: String,
    namespace: Option<PathBuf>,
    families: Vec<Family>,
    connection: Connection<Nftables>,
    sets: HashMap<(Family, &'static str), Set>,
    port: Arc<AtomicU32>,
}

impl Kernel {
    pub fn open(table: &str, namespace: Option<&Path>, families: &[Family]) -> Result<Kernel, Error> {
        let connection = connect(namespace)?;
        let port = Arc::new(AtomicU32::new(connection.socket().pid()));
        let mut sets = HashMap::new();
        for family in families {
            sets.extend(encode::sets(table, *family).into_iter().map(|(name, set)| ((*family, name), set)));
        }
        let (table, namespace) = (table.to_owned(), namespace.map(Path::to_owned));
        Ok(Kernel { table, namespace, families: families.to_vec(), connection, sets, port })
    }

    /// Hears when someone else changes the table.
    pub fn watch(&self) -> std::io::Result<Watch> {
        Watch::open(&self.table, self.namespace.as_deref(), self.port.clone())
    }

    /// Makes these changes, in one transaction.
    pub async fn apply(&self, changes: &[Change]) -> Result<(), Error> {
        let mut batch = Batch::default();
        for change in changes {
            batch.change(change);
        }
        self.commit(None, batch).await
    }

    /// Compares the kernel with what should be there, and makes it so. What agrees is left alone.
    pub async fn reconcile(&self, ledger: &Ledger) -> Result<Repaired, Error> {
        let mut repaired = Repaired::default();
        for family in &self.families {
            let found = if self.has_layout(*family).await? { Some(self.read(*family).await?) } else { None };
            let Some(found) = found else {
                repaired.tables += 1;
                self.rebuild(*family, ledger).await?;
                continue;
            };
            let batch = self.differences(*family, ledger, &found);
            if batch.is_empty() {
                continue;
            }
            repaired.chains += batch.chains_new.len() + batch.chains_gone.len();
            repaired.elements += batch.clients_new.len() + batch.clients_gone.len();
            repaired.elements += batch.elements();
            if let Err(error) = self.commit(None, batch).await {
                // Something in the table is not as we know it, such as a foreign rule that holds on to a chain.
                tracing::warn!(%error, table = self.table, "cannot repair nftables rules; rebuilding the table");
                repaired.tables += 1;
                self.rebuild(*family, ledger).await?;
            }
        }
        Ok(repaired)
    }

    /// Takes the tables away.
    pub async fn remove(&self) -> Result<(), Error> {
        for family in &self.families {
            let mut transaction = self.connection.transaction();
            transaction = without_table(transaction, &self.table, *family);
            transaction.commit(&self.connection).await.map_err(|source| self.write_failed(source))?;
        }
        Ok(())
    }

    async fn has_layout(&self, family: Family) -> Result<bool, Error> {
        let tables =
            self.connection.list_tables_in(nft_family(family)).await.map_err(|source| self.read_failed(source))?;
        let table = tables.iter().find(|table| table.name == self.table);
        if table.and_then(|table| table.comment.as_deref()) != Some(&layout_comment(family)) {
            return Ok(false);
        }
        // Someone may have taken a set away.
        let listed = self.connection.list_sets_in(&self.table, nft_family(family)).await;
        let listed: HashSet<String> =
            listed.map_err(|source| self.read_failed(source))?.into_iter().map(|set| set.name).collect();
        Ok(self.sets.keys().all(|(of, name)| *of != family || listed.contains(*name)))
    }

    async fn read(&self, family: Family) -> Result<Found, Error> {
        let failed = |source| self.read_failed(source);
        let mut chains: HashMap<String, Vec<Option<String>>> = HashMap::new();
        for chain in self.connection.list_chains_in(self.table.as_str(), nft_family(family)).await.map_err(failed)? {
            chains.insert(chain.name, Vec::new());
        }
        for rule in self.connection.list_rules(&self.table, nft_family(family)).await.map_err(failed)? {
            chains.entry(rule.chain).or_default().push(rule.comment_text);
        }
        let mut elements = HashSet::new();
        for (_, name) in self.sets.keys().filter(|(of, _)| *of == family) {
            let listed = self.connection.list_set_elements(&self.table, name, nft_family(family)).await;
            elements.extend(listed.map_err(failed)?.iter().map(|element| Encoded::read(name, element)));
        }
        let sets = self.connection.list_sets_in(&self.table, nft_family(family)).await.map_err(failed)?;
        let clients = sets.into_iter().map(|set| set.name).filter(|name| name.starts_with(CLIENTS_PREFIX)).collect();
        Ok(Found { chains, elements, clients })
    }

    /// What must be done to come from what was found to what should be.
    fn differences(&self, family: Family, ledger: &Ledger, found: &Found) -> Batch {
        let mut batch = Batch::default();
        let mut wanted: HashSet<String> = HashSet::new();
        let mut kept: HashSet<Encoded> = HashSet::new();
        let mut check = |batch: &mut Batch, chain: Chain| {
            let rules: Vec<Option<String>> =
                chain.rules.iter().map(|rule| Some(layout::rule_digest(family, rule))).collect();
            wanted.insert(chain.name.clone());
            match found.chains.get(&chain.name) {
                Some(there) if *there == rules => {}
                there => batch.chains_new.push((family, chain, there.is_some())),
            }
        };
        for chain in layout::chains() {
            check(&mut batch, chain);
        }
        let mut clients: HashSet<String> = HashSet::new();
        for (key, value, owner) in ledger.iter().filter(|(key, ..)| key.family() == family) {
            if let Some(chain) = chain_of(value) {
                check(&mut batch, chain.clone());
            }
            if let Key::Clients(_, one) = key {
                let name = encode::clients_name(*one);
                if !found.clients.contains(&name) {
                    batch.clients_new.push((family, *one));
                }
                clients.insert(name);
            }
            if let Some(encoded) = encode::encode(key, value) {
                if !found.elements.contains(&encoded) {
                    batch.add(family, &encoded, owner);
                }
                kept.insert(encoded);
            }
        }
        for element in found.elements.difference(&kept) {
            batch.delete(family, element);
        }
        batch.clients_gone.extend(found.clients.difference(&clients).map(|name| (family, name.clone())));
        for name in found.chains.keys().filter(|name| !wanted.contains(*name)) {
            batch.chains_gone.push((family, name.clone()));
        }
        batch
    }

    /// The whole table, from nothing.
    async fn rebuild(&self, family: Family, ledger: &Ledger) -> Result<(), Error> {
        let mut batch = Batch::default();
        batch.chains_new.extend(layout::chains().into_iter().map(|chain| (family, chain, false)));
        for (key, value, owner) in ledger.iter().filter(|(key, ..)| key.family() == family) {
            if let Some(chain) = chain_of(value) {
                batch.chains_new.push((family, chain.clone(), false));
            }
            if let Key::Clients(_, one) = key {
                batch.clients_new.push((family, *one));
            }
            if let Some(encoded) = encode::encode(key, value) {
                batch.add(family, &encoded, owner);
            }
        }
        self.commit(Some(family), batch).await
    }

    /// In one transaction, as long as it is not larger than any real cluster needs.
    async fn commit(&self, anew: Option<Family>, batch: Batch) -> Result<(), Error> {
        let mut transaction = self.connection.transaction();
        if let Some(family) = anew {
            transaction = without_table(transaction, &self.table, family);
            let comment = layout_comment(family);
            transaction = transaction.add_table_with_comment(&self.table, nft_family(family), 0, Some(&comment));
            for ((_, _), set) in self.sets.iter().filter(|((of, _), _)| *of == family) {
                transaction = transaction.add_set(set.clone());
            }
        }
        for (family, clients) in &batch.clients_new {
            transaction = transaction.add_set(encode::clients(&self.table, *family, *clients));
        }
        for (family, chain, is_there) in &batch.chains_new {
            transaction = if *is_there {
                transaction.flush_chain(&self.table, &chain.name, nft_family(*family))
            } else {
                transaction.add_chain(self.chain(*family, chain)?)
            };
        }
        // Rules may lead to chains that come after their own.
        for (family, chain, _) in &batch.chains_new {
            for rule in &chain.rules {
                let written = NftRule::new(&self.table, &chain.name).family(nft_family(*family));
                let written = written.expressions(expressions::expressions(*family, rule));
                transaction = transaction.add_rule(written.comment(&layout::rule_digest(*family, rule)));
            }
        }
        // What changes is taken away and added, so the old ones go first.
        let mut count = 0;
        for (key, elements) in &batch.gone {
            for part in elements.chunks(ELEMENTS_PER_MESSAGE) {
                transaction = transaction.del_set_elements(&self.sets[key], part);
                count += part.len();
            }
        }
        for (key, elements) in &batch.new {
            for part in elements.chunks(ELEMENTS_PER_MESSAGE) {
                transaction = transaction.add_set_elements(&self.sets[key], part);
                count += part.len();
                if count >= ELEMENTS_PER_TRANSACTION {
                    transaction.commit(&self.connection).await.map_err(|source| self.write_failed(source))?;
                    (transaction, count) = (self.connection.transaction(), 0);
                }
            }
        }
        for (family, name) in &batch.chains_gone {
            let family = nft_family(*family);
            transaction = transaction.flush_chain(&self.table, name, family);
        }
        for (family, name) in &batch.chains_gone {
            transaction = transaction.del_chain(&self.table, name, nft_family(*family));
        }
        for (family, name) in &batch.clients_gone {
            transaction = transaction.del_set(&self.table, name, nft_family(*family));
        }
        transaction.commit(&self.connection).await.map_err(|source| self.write_failed(source))
    }

    fn chain(&self, family: Family, chain: &Chain) -> Result<NftChain, Error> {
        let made =
            NftChain::new(self.table.as_str(), chain.name.as_str()).map_err(|source| self.write_failed(source))?;
        let made = made.family(nft_family(family));
        let base = match chain.hook {
            None => return Ok(made),
            Some(Hook::TranslatePrerouting) => BaseChain::nat(NatHook::Prerouting, Priority::DstNat),
            Some(Hook::TranslateOutput) => BaseChain::nat(NatHook::Output, Priority::DstNat),
            Some(Hook::TranslatePostrouting) => BaseChain::nat(NatHook::Postrouting, Priority::SrcNat),
            Some(Hook::FilterPrerouting(at)) => BaseChain::filter(FilterHook::Prerouting, Priority::Custom(at)),
            Some(Hook::FilterOutput(at)) => BaseChain::filter(FilterHook::Output, Priority::Custom(at)),
            Some(Hook::FilterInput) => BaseChain::filter(FilterHook::Input, Priority::Filter),
            Some(Hook::FilterForward) => BaseChain::filter(FilterHook::Forward, Priority::Filter),
        };
        Ok(made.base(base))
    }

    fn read_failed(&self, source: nlink::netlink::Error) -> Error {
        Error::Read { table: self.table.clone(), source }
    }

    fn write_failed(&self, source: nlink::netlink::Error) -> Error {
        Error::Write { table: self.table.clone(), source }
    }

    /// The number by which the kernel knows our socket.
    pub fn port(&self) -> u32 {
        self.port.load(Ordering::Relaxed)
    }
}

/// What is in a table of the kernel.
struct Found {
    /// The comments of each chain's rules.
    chains: HashMap<String, Vec<Option<String>>>,
    elements: HashSet<Encoded>,
    /// The names of the sets of clients.
    clients: HashSet<String>,
}

/// What a transaction does, in the order in which the kernel must be told.
#[derive(Default)]
struct Batch {
    /// And whether there is one already, whose rules are others.
    chains_new: Vec<(Family, Chain, bool)>,
    gone: BTreeMap<(Family, &'static str), Vec<SetElement>>,
    new: BTreeMap<(Family, &'static str), Vec<SetElement>>,
    chains_gone: Vec<(Family, String)>,
    clients_new: Vec<(Family, u64)>,
    clients_gone: Vec<(Family, String)>,
}

impl Batch {
    fn change(&mut self, change: &Change) {
        let family = change.key.family();
        let (old, new) = (change.old.as_ref().and_then(chain_of), change.new.as_ref().and_then(chain_of));
        match (old, new) {
            (old, Some(chain)) => self.chains_new.push((family, chain.clone(), old.is_some())),
            (Some(chain), None) => self.chains_gone.push((family, chain.name.clone())),
            (None, None) => {}
        }
        if let Key::Clients(_, clients) = change.key {
            match &change.new {
                Some(_) => self.clients_new.push((family, clients)),
                None => self.clients_gone.push((family, encode::clients_name(clients))),
            }
        }
        let encoded = |value: &Option<Value>| value.as_ref().and_then(|value| encode::encode(&change.key, value));
        if let Some(old) = encoded(&change.old) {
            self.delete(family, &old);
        }
        if let Some(new) = encoded(&change.new) {
            self.add(family, &new, &change.owner);
        }
    }

    fn add(&mut self, family: Family, element: &Encoded, owner: &ObjectKey) {
        self.new.entry((family, element.set)).or_default().push(element.element(Some(owner)));
    }

    fn delete(&mut self, family: Family, element: &Encoded) {
        self.gone.entry((family, element.set)).or_default().push(element.element(None));
    }

    fn elements(&self) -> usize {
        self.new.values().chain(self.gone.values()).map(Vec::len).sum()
    }

    fn is_empty(&self) -> bool {
        let lists = [self.chains_gone.len(), self.clients_new.len(), self.clients_gone.len(), self.elements()];
        self.chains_new.is_empty() && lists == [0; 4]
    }
}

fn chain_of(value: &Value) -> Option<&Chain> {
    match value {
        Value::Chain(chain) => Some(chain),
        _ => None,
    }
}

/// Making it first means that there is one to delete, on kernels that cannot delete what may not be there.
fn without_table(transaction: Transaction, table: &str, family: Family) -> Transaction {
    let family = nft_family(family);
    let made = RawMessage::new(NFT_MSG_NEWTABLE, family).flags(CREATE).attrs(text_attribute(NFTA_TABLE_NAME, table));
    transaction.raw(made).del_table(table, family)
}

/// Changes whenever a set or a chain of every table does. The digest of what rules do is in their own comments; here it
/// is enough that the sets which they use are the same.
fn layout_comment(family: Family) -> String {
    let chains: Vec<_> = layout::chains().into_iter().map(|chain| (chain.name, chain.hook)).collect();
    let text = format!("{chains:?} {:?}", encode::sets("", family));
    format!("knarr kube-proxy {:016x}", digest(text.as_bytes()))
}

fn connect(namespace: Option<&Path>) -> Result<Connection<Nftables>, Error> {
    let connection = match namespace {
        Some(path) => Connection::new_in(path),
        None => Connection::<Nftables>::new(),
    };
    let connection = connection.map_err(Error::Open)?;
    rustix::net::sockopt::set_socket_send_buffer_size_force(connection.socket(), SEND_BYTES)
        .map_err(|error| Error::Room(error.into()))?;
    Ok(connection)
}

/// A netlink attribute that holds a text.
fn text_attribute(kind: u16, text: &str) -> Vec<u8> {
    let length = 4 + text.len() + 1;
    let mut bytes = [(length as u16).to_ne_bytes(), kind.to_ne_bytes()].concat();
    bytes.extend_from_slice(text.as_bytes());
    bytes.resize(length.next_multiple_of(4), 0);
    bytes
}
