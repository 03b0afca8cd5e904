//! The graph of owner references. Pure: changes go in, objects to examine come out.
//!
//! An owner that somebody names but no watch has brought is a node too, an unobserved one: a look at the live object
//! will tell whether it exists. What a reference says of its owner may be wrong, so a node has the identity that was
//! observed, and only until then the one that a reference claims.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub(super) type Uid = Arc<str>;

/// How long an unobserved owner is given to come by its watch.
pub(super) const SOON: Duration = Duration::from_millis(100);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Identity {
    pub api_version: Arc<str>,
    pub kind: Arc<str>,
    pub namespace: Arc<str>,
    pub name: Arc<str>,
    pub uid: Uid,
}

/// A reference to an owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    pub api_version: Arc<str>,
    pub kind: Arc<str>,
    pub name: Arc<str>,
    pub uid: Uid,
    /// The owner, deleted in the foreground, waits for this dependent.
    pub blocks: bool,
}

impl Owner {
    /// Whom the reference means, seen from a namespace; empty for an owner outside of namespaces.
    pub fn identity(&self, namespace: &Arc<str>) -> Identity {
        let (api_version, kind, name) = (self.api_version.clone(), self.kind.clone(), self.name.clone());
        Identity { api_version, kind, namespace: namespace.clone(), name, uid: self.uid.clone() }
    }

    fn names(&self, identity: &Identity) -> bool {
        self.api_version == identity.api_version
            && self.kind == identity.kind
            && self.name == identity.name
            && self.uid == identity.uid
    }
}

/// What a watch says of an object.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub identity: Identity,
    pub owners: Vec<Owner>,
    pub deleting: bool,
    /// It has the finalizer of a deletion in the foreground.
    pub foreground: bool,
    /// It has the finalizer of a deletion that leaves its dependents.
    pub orphan: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Node {
    pub identity: Identity,
    pub owners: Vec<Owner>,
    pub dependents: BTreeSet<Uid>,
    pub observed: bool,
    pub deleting: bool,
    /// In deletion, until its blocking dependents are gone.
    pub waiting: bool,
    /// In deletion, until its dependents have been told.
    pub orphaning: bool,
}

/// Something for a worker, by the uid of the object.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Job {
    /// Look whether it must go.
    Look(Uid),
    /// Let its dependents live on without it.
    Orphan(Uid),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Todo {
    Now(Job),
    Soon(Job),
    /// Remember that this one is gone.
    Absent(Identity),
}

#[derive(Default)]
pub(super) struct Graph {
    nodes: HashMap<Uid, Node>,
}

impl Graph {
    pub fn get(&self, uid: &str) -> Option<&Node> {
        self.nodes.get(uid)
    }

    pub fn dependents<'a>(&'a self, node: &'a Node) -> impl Iterator<Item = &'a Node> {
        node.dependents.iter().filter_map(|uid| self.nodes.get(uid))
    }

    /// The dependents that hold up an owner that is deleted in the foreground.
    pub fn blocking<'a>(&'a self, node: &'a Node) -> impl Iterator<Item = &'a Node> {
        let uid = &node.identity.uid;
        self.dependents(node)
            .filter(move |dependent| dependent.owners.iter().any(|owner| owner.uid == *uid && owner.blocks))
    }

    /// An object is there, new or changed.
    pub fn observe(&mut self, seen: Seen, todo: &mut Vec<Todo>) {
        let uid = seen.identity.uid.clone();
        let Some(node) = self.nodes.get_mut(&uid) else {
            let node = Node {
                identity: seen.identity,
                owners: seen.owners.clone(),
                dependents: BTreeSet::new(),
                observed: true,
                deleting: false,
                waiting: false,
                orphaning: false,
            };
            self.nodes.insert(uid.clone(), node);
            self.link(&uid, &seen.owners, todo);
            return self.mark(&uid, seen.deleting, seen.foreground, seen.orphan, todo);
        };
        let claimed = std::mem::replace(&mut node.identity, seen.identity.clone());
        node.observed = true;
        let old = std::mem::replace(&mut node.owners, seen.owners.clone());
        if claimed != seen.identity {
            // Those who described it otherwise may mean an owner that does not exist.
            let (_, mismatched) = self.partition(&uid, &seen.identity);
            todo.extend(mismatched.into_iter().map(|uid| Todo::Now(Job::Look(uid))));
        }
        self.relink(&uid, &old, &seen.owners, todo);
        self.mark(&uid, seen.deleting, seen.foreground, seen.orphan, todo);
    }

    /// An object is gone, as its watch says.
    pub fn forget(&mut self, uid: &str, todo: &mut Vec<Todo>) {
        let Some(node) = self.nodes.remove(uid) else { return };
        self.unlink(&node.identity.uid, &node.owners);
        if !node.dependents.is_empty() {
            todo.push(Todo::Absent(node.identity.clone()));
        }
        todo.extend(node.dependents.iter().map(|dependent| Todo::Now(Job::Look(dependent.clone()))));
        // An owner that waits for its dependents has one less.
        let waiting = node.owners.iter().filter(|owner| self.nodes.get(&owner.uid).is_some_and(|node| node.waiting));
        todo.extend(waiting.map(|owner| Todo::Now(Job::Look(owner.uid.clone()))));
    }

    /// A look at the live object found that nobody of this identity exists.
    pub(crate) fn forget_absent(&mut self, identity: &Identity, todo: &mut Vec<Todo>) {
        let Some(node) = self.nodes.get(&identity.uid) else { return };
        if node.observed && node.identity == *identity {
            return self.forget(&identity.uid, todo);
        }
        let (matching, mismatched) = self.partition(&identity.uid, identity);
        if !node.observed && mismatched.is_empty() {
            return self.forget(&identity.uid, todo);
        }
        if !matching.is_empty() {
            todo.push(Todo::Absent(identity.clone()));
            todo.extend(matching.into_iter().map(|uid| Todo::Now(Job::Look(uid))));
        }
        // References disagree about who this is: look at what the others claim.
        if !node.observed
            && node.identity == *identity
            && let Some(other) = self.other_claim(&mismatched, identity)
        {
            let uid = identity.uid.clone();
            self.nodes.entry(uid.clone()).and_modify(|node| node.identity = other);
            todo.push(Todo::Soon(Job::Look(uid)));
        }
    }

    /// After a new list of a kind: what it does not hold is gone.
    pub fn keep_only(&mut self, api_version: &str, kind: &str, listed: &HashSet<Uid>, todo: &mut Vec<Todo>) {
        let of_kind =
            |node: &&Node| node.observed && &*node.identity.api_version == api_version && &*node.identity.kind == kind;
        let gone = self.nodes.values().filter(of_kind).filter(|node| !listed.contains(&node.identity.uid));
        let gone: Vec<Uid> = gone.map(|node| node.identity.uid.clone()).collect();
        gone.iter().for_each(|uid| self.forget(uid, todo));
    }

    fn link(&mut self, uid: &Uid, owners: &[Owner], todo: &mut Vec<Todo>) {
        let namespace = self.nodes[uid].identity.namespace.clone();
        let mut doubtful = false;
        for owner in owners {
            let node = self.nodes.entry(owner.uid.clone()).or_insert_with(|| {
                todo.push(Todo::Soon(Job::Look(owner.uid.clone())));
                Node {
                    identity: owner.identity(&namespace),
                    owners: Vec::new(),
                    dependents: BTreeSet::new(),
                    observed: false,
                    deleting: false,
                    waiting: false,
                    orphaning: false,
                }
            });
            node.dependents.insert(uid.clone());
            let elsewhere = !node.identity.namespace.is_empty() && node.identity.namespace != namespace;
            // One that comes to an owner in a foreground deletion is looked at too, or the owner might wait forever.
            doubtful |= elsewhere || node.waiting || !owner.names(&node.identity);
        }
        if doubtful {
            todo.push(Todo::Now(Job::Look(uid.clone())));
        }
    }

    fn relink(&mut self, uid: &Uid, old: &[Owner], new: &[Owner], todo: &mut Vec<Todo>) {
        if old == new {
            return;
        }
        let among = |owners: &[Owner], uid: &Uid| owners.iter().any(|owner| owner.uid == *uid);
        let added: Vec<Owner> = new.iter().filter(|owner| !among(old, &owner.uid)).cloned().collect();
        let removed: Vec<Owner> = old.iter().filter(|owner| !among(new, &owner.uid)).cloned().collect();
        for owner in old.iter().filter(|owner| owner.blocks) {
            // An owner that waited for this one may wait no longer.
            if !new.iter().any(|one| one.uid == owner.uid && one.blocks) {
                todo.push(Todo::Now(Job::Look(owner.uid.clone())));
            }
        }
        self.unlink(uid, &removed);
        self.link(uid, &added, todo);
    }

    fn unlink(&mut self, uid: &Uid, owners: &[Owner]) {
        for owner in owners {
            let Some(node) = self.nodes.get_mut(&owner.uid) else { continue };
            node.dependents.remove(uid);
            // Nobody names it any more and no watch brought it: there is nothing to keep.
            if !node.observed && node.dependents.is_empty() {
                self.nodes.remove(&owner.uid);
            }
        }
    }

    /// Notes how far the deletion of a node is; a deletion that begins to wait is worth a look.
    fn mark(&mut self, uid: &Uid, deleting: bool, foreground: bool, orphan: bool, todo: &mut Vec<Todo>) {
        let node = self.nodes.get_mut(uid).expect("the caller has put the node there");
        let (waiting, orphaning) = (deleting && foreground, deleting && orphan);
        let (waits_now, orphans_now) = (waiting && !node.waiting, orphaning && !node.orphaning);
        (node.deleting, node.waiting, node.orphaning) = (deleting, waiting, orphaning);
        if orphans_now {
            todo.push(Todo::Now(Job::Orphan(uid.clone())));
        } else if waits_now {
            todo.extend(node.dependents.iter().map(|dependent| Todo::Now(Job::Look(dependent.clone()))));
            todo.push(Todo::Now(Job::Look(uid.clone())));
        }
    }

    /// The dependents of a node by whether their reference describes it as this identity; one may be in both.
    fn partition(&self, uid: &Uid, identity: &Identity) -> (Vec<Uid>, Vec<Uid>) {
        let (mut matching, mut mismatched) = (Vec::new(), Vec::new());
        let Some(node) = self.nodes.get(uid) else { return (matching, mismatched) };
        for dependent in self.dependents(node) {
            let elsewhere = !identity.namespace.is_empty() && identity.namespace != dependent.identity.namespace;
            let mut references = dependent.owners.iter().filter(|owner| owner.uid == *uid);
            let dependent = &dependent.identity.uid;
            if elsewhere {
                mismatched.push(dependent.clone());
                continue;
            }
            if references.clone().any(|owner| owner.names(identity)) {
                matching.push(dependent.clone());
            }
            if references.any(|owner| !owner.names(identity)) {
                mismatched.push(dependent.clone());
            }
        }
        (matching, mismatched)
    }

    /// The first identity, in a fixed order behind the refuted one and then from the beginning, that others claim.
    fn other_claim(&self, dependents: &[Uid], refuted: &Identity) -> Option<Identity> {
        let nodes = dependents.iter().filter_map(|uid| self.nodes.get(uid));
        let claims = nodes.flat_map(|node| {
            let of_uid = node.owners.iter().filter(|owner| owner.uid == refuted.uid);
            of_uid.map(|owner| owner.identity(&node.identity.namespace))
        });
        let order =
            |one: &Identity| (one.api_version.clone(), one.kind.clone(), one.name.clone(), one.namespace.clone());
        let mut claims: Vec<Identity> = claims.filter(|claim| claim != refuted).collect();
        claims.sort_by_key(order);
        let next = claims.iter().find(|claim| order(claim) > order(refuted));
        next.or(claims.first()).cloned()
    }
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Job::Look(uid) => write!(f, "look at {uid}"),
            Job::Orphan(uid) => write!(f, "orphan the dependents of {uid}"),
        }
    }
}

#[cfg(test)]
#[path = "graph_tests.rs"]
mod tests;
