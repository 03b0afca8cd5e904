//! Which branch of the grammar the next words take, looking as far ahead as upstream's generated parser does: first
//! without regard to who called the rule, then, where that leaves two branches, with regard to it. That it is done in the
//! same two steps matters for what is told of words that fit no branch.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::grammar::{Choose, END, Edge, Kinds, NETWORK, RULE_END, Role};

/// How many steps all predictions of one expression may take; behind that nothing more is told of it.
pub(super) const STEPS_MAX: usize = 300_000;

/// Why no branch is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stuck {
    /// The word fits no branch.
    At(usize),
    /// It takes more than [`STEPS_MAX`].
    Steps,
}

/// Where a branch could be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Place {
    state: usize,
    branch: usize,
    stack: usize,
    /// The rule of the decision has ended on the way.
    outside: bool,
}

/// Stacks of states to return to; the first is empty.
struct Stacks {
    links: Vec<(usize, usize)>,
    known: HashMap<(usize, usize), usize>,
}

const EMPTY: usize = 0;

impl Stacks {
    fn push(&mut self, below: usize, follow: usize) -> usize {
        let next = self.links.len();
        let stack = *self.known.entry((follow, below)).or_insert(next);
        if stack == next {
            self.links.push((follow, below));
        }
        stack
    }

    /// The states from the top on.
    fn states(&self, mut stack: usize) -> Vec<usize> {
        let mut states = Vec::new();
        while stack != EMPTY {
            let (follow, below) = self.links[stack];
            states.push(follow);
            stack = below;
        }
        states
    }
}

/// Words from the one on that the decision is about, and who called its rule.
pub(super) struct Prediction<'p> {
    kinds: &'p [Kinds],
    at: usize,
    whole: bool,
    stacks: Stacks,
    steps: &'p mut usize,
}

/// The branch, from 0, that the words from `at` take at that state.
pub(super) fn predict(
    decision: usize,
    kinds: &[Kinds],
    at: usize,
    returns: &[usize],
    steps: &mut usize,
) -> Result<usize, Stuck> {
    if let Some(branch) = by_one_word(decision, kinds.get(at).copied().unwrap_or(END)) {
        return Ok(branch);
    }
    let stacks = Stacks { links: vec![(0, 0)], known: HashMap::new() };
    let mut prediction = Prediction { kinds, at, whole: false, stacks, steps };
    let mut places = prediction.starts(decision, EMPTY)?;
    let mut word = at;
    loop {
        let kind = prediction.kind(word);
        let reached = prediction.reach(&places, kind)?;
        if reached.is_empty() {
            return prediction.ended(&places).ok_or(Stuck::At(word));
        }
        if let Some(branch) = only(&reached) {
            return Ok(branch);
        }
        if kind == END || prediction.conflicts(&reached) {
            return prediction.with_callers(decision, returns);
        }
        places = reached;
        word += 1;
    }
}

/// The branch that the word alone decides: no other begins with it, and none can be empty.
fn by_one_word(decision: usize, kind: Kinds) -> Option<usize> {
    let mut fitting = None;
    for (branch, edge) in NETWORK.states[decision].edges.iter().enumerate() {
        let Edge::Free(to) = edge else { return None };
        let next = NETWORK.states[*to].next;
        if next & RULE_END != 0 || next & kind != 0 && fitting.is_some() {
            return None;
        }
        if next & kind != 0 {
            fitting = Some(branch);
        }
    }
    fitting
}

fn only(places: &[Place]) -> Option<usize> {
    let first = places.first()?.branch;
    places.iter().all(|place| place.branch == first).then_some(first)
}

impl Prediction<'_> {
    fn with_callers(&mut self, decision: usize, returns: &[usize]) -> Result<usize, Stuck> {
        self.whole = true;
        let callers = returns.iter().fold(EMPTY, |stack, follow| self.stacks.push(stack, *follow));
        let mut places = self.starts(decision, callers)?;
        let mut word = self.at;
        loop {
            let kind = self.kind(word);
            let reached = self.reach(&places, kind)?;
            if reached.is_empty() {
                // Upstream has gone back to the first word when it tells this.
                return self.ended(&places).ok_or(Stuck::At(self.at));
            }
            let viable: BTreeSet<usize> =
                self.subsets(&reached).iter().filter_map(|branches| branches.first().copied()).collect();
            if let (1, Some(branch)) = (viable.len(), viable.first()) {
                return Ok(*branch);
            }
            if kind == END {
                return viable.first().copied().ok_or(Stuck::At(self.at));
            }
            places = reached;
            word += 1;
        }
    }

    fn kind(&self, word: usize) -> Kinds {
        self.kinds.get(word).copied().unwrap_or(END)
    }

    fn starts(&mut self, decision: usize, stack: usize) -> Result<Vec<Place>, Stuck> {
        let mut seen = HashSet::new();
        let mut places = Vec::new();
        for (branch, edge) in NETWORK.states[decision].edges.iter().enumerate() {
            if let Edge::Free(state) = edge {
                self.close(Place { state: *state, branch, stack, outside: false }, &mut seen, &mut places)?;
            }
        }
        Ok(places)
    }

    /// Where the word leads.
    fn reach(&mut self, places: &[Place], kind: Kinds) -> Result<Vec<Place>, Stuck> {
        let mut seen = HashSet::new();
        let mut reached = Vec::new();
        for place in places {
            for edge in &NETWORK.states[place.state].edges {
                if let Edge::Token { kinds, to, .. } = edge
                    && kinds & kind != 0
                {
                    self.close(Place { state: *to, ..*place }, &mut seen, &mut reached)?;
                }
            }
        }
        Ok(reached)
    }

    /// Everything that can be reached from there without a word, as far as a word or the end is next.
    fn close(&mut self, from: Place, seen: &mut HashSet<Place>, out: &mut Vec<Place>) -> Result<(), Stuck> {
        let mut open = vec![from];
        while let Some(place) = open.pop() {
            if !seen.insert(place) {
                continue;
            }
            *self.steps += 1;
            if *self.steps > STEPS_MAX {
                return Err(Stuck::Steps);
            }
            let state = &NETWORK.states[place.state];
            if state.role == Role::Stop {
                self.leave(place, &mut open, out);
                continue;
            }
            let skip = usize::from(self.is_repeated_outside(place));
            for edge in state.edges.iter().skip(skip) {
                match edge {
                    Edge::Free(to) | Edge::Rank(_, to) => open.push(Place { state: *to, ..place }),
                    Edge::Call { rule, follow, .. } => {
                        let stack = self.stacks.push(place.stack, *follow);
                        open.push(Place { state: NETWORK.start(*rule), stack, ..place });
                    }
                    Edge::Token { .. } => out.push(place),
                }
            }
        }
        Ok(())
    }

    /// Back to the caller, or to every possible one where it is not known.
    fn leave(&mut self, place: Place, open: &mut Vec<Place>, out: &mut Vec<Place>) {
        let state = &NETWORK.states[place.state];
        if place.stack != EMPTY {
            let (follow, below) = self.stacks.links[place.stack];
            open.push(Place { state: follow, stack: below, ..place });
            return;
        }
        let follows = &NETWORK.follows[state.rule as usize];
        if self.whole || follows.is_empty() {
            out.push(place);
            return;
        }
        open.extend(follows.iter().map(|follow| Place { state: *follow, outside: true, ..place }));
    }

    /// A loop of operators within an operand of the same rule: the outer loop takes the same operators.
    fn is_repeated_outside(&self, place: Place) -> bool {
        let state = &NETWORK.states[place.state];
        let (follow, _) = self.stacks.links[place.stack];
        state.role == Role::StarEntry(Choose::Rank) && place.stack != EMPTY && NETWORK.states[follow].rule == state.rule
    }

    /// The first branch that went through to the end of the decision's rule.
    fn ended(&self, places: &[Place]) -> Option<usize> {
        let is_end =
            |place: &&Place| place.outside || NETWORK.states[place.state].role == Role::Stop && place.stack == EMPTY;
        places.iter().filter(is_end).map(|place| place.branch).min()
    }

    /// Whether more words cannot part the branches while callers are not known.
    fn conflicts(&self, places: &[Place]) -> bool {
        let mut by_state: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
        for place in places {
            by_state.entry(place.state).or_default().insert(place.branch);
        }
        by_state.values().all(|branches| branches.len() > 1)
            && self.subsets(places).iter().any(|branches| branches.len() > 1)
    }

    /// The branches that are at the same state with the same callers.
    fn subsets(&self, places: &[Place]) -> Vec<BTreeSet<usize>> {
        let mut stacks: BTreeMap<(usize, usize), BTreeSet<Vec<usize>>> = BTreeMap::new();
        for place in places {
            // Equal stacks have equal numbers; their states matter only where one can stand for another.
            let stack = if self.whole { vec![place.stack] } else { self.stacks.states(place.stack) };
            stacks.entry((place.state, place.branch)).or_default().insert(stack);
        }
        let mut subsets: BTreeMap<(usize, Vec<Vec<usize>>), BTreeSet<usize>> = BTreeMap::new();
        for ((state, branch), stacks) in stacks {
            subsets.entry((state, self.merged(stacks))).or_default().insert(branch);
        }
        subsets.into_values().collect()
    }

    /// Without known callers an empty stack stands for every one.
    fn merged(&self, stacks: BTreeSet<Vec<usize>>) -> Vec<Vec<usize>> {
        let mut kept: Vec<Vec<usize>> = Vec::new();
        for stack in stacks {
            // In order, so a stack comes right behind those it begins with.
            if self.whole || !kept.iter().any(|other| stack.starts_with(other)) {
                kept.push(stack);
            }
        }
        kept
    }
}
