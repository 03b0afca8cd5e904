//! Everything that is wrong with the syntax of an expression, in upstream's words. Upstream's generated parser goes on
//! behind a mistake: it leaves a word out, takes a missing one as there, or skips to where a rule further out can go on.
//! What it tells depends on each of these steps, so they are the same here. No tree is built.

use super::error::{Issue, Problem};
use super::grammar::{self, Choose, END, Edge, Kinds, NAME, NETWORK, RULE_END, Role, Rule};
use super::lexer::{Token, Word};
use super::predict::{Stuck, predict};
use super::types::WORDS;

/// How many rules may be nested; the parser refuses what is deeper before it comes here.
const RULES_MAX: usize = 2_000;

/// How often a mistake is recovered from, and how many words are skipped for one.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    pub recoveries_max: usize,
    pub skipped_max: usize,
}

/// Upstream's.
pub(super) const LIMITS: Limits = Limits { recoveries_max: 30, skipped_max: 256 };

/// What is wrong, and whether upstream would look at the meaning of the rest.
pub(super) struct Findings {
    /// Words that do not fit.
    pub syntax: Vec<Issue>,
    /// Reserved words in the place of names.
    pub reserved: Vec<Issue>,
    pub is_complete: bool,
    /// Where the last word ends that was looked at: upstream reads no further.
    pub read_until: usize,
}

/// Looks through words that are no expression. `skipped` says which parts of the text are no words.
pub(super) fn findings(text: &str, words: &[Word], skipped: &[(usize, usize)], limits: Limits) -> Findings {
    let kinds: Vec<Kinds> = words.iter().map(kind).collect();
    let mut walk = Walk {
        text,
        words,
        skipped,
        limits,
        kinds,
        at: 0,
        state: 0,
        frames: Vec::new(),
        recovering: None,
        recoveries: 0,
        steps: 0,
        found: Findings { syntax: Vec::new(), reserved: Vec::new(), is_complete: true, read_until: text.len() },
    };
    walk.run();
    walk.found
}

fn kind(word: &Word) -> Kinds {
    match &word.token {
        Token::Int(_) => grammar::INT,
        Token::Uint(_) => grammar::UINT,
        Token::Double(_) => grammar::FLOAT,
        Token::Text(_) => grammar::TEXT,
        Token::Bytes(_) => grammar::BYTES,
        Token::Quoted(_) => grammar::QUOTED,
        Token::Name(name) => grammar::kind_of(name).unwrap_or(NAME),
        Token::Sign(sign) => grammar::kind_of(sign).unwrap_or(END),
        Token::End => END,
    }
}

/// A rule that is being read.
struct Frame {
    /// The state that called it, and the one to return to.
    caller: usize,
    follow: usize,
    rank: u8,
    /// How many reserved words there were before what it reads now and may not finish.
    reserved: usize,
}

/// A mistake has been told, and no word has fitted since.
#[derive(Default)]
struct Recovering {
    /// Where it was recovered from, and in which states.
    last: Option<(usize, Vec<usize>)>,
}

/// Why a rule is left.
enum Left {
    Mismatch,
    /// No branch fits from the first word to the second.
    NoBranch(usize, usize),
    /// Nothing more is told.
    Over,
}

struct Walk<'t> {
    text: &'t str,
    words: &'t [Word],
    skipped: &'t [(usize, usize)],
    limits: Limits,
    kinds: Vec<Kinds>,
    at: usize,
    state: usize,
    frames: Vec<Frame>,
    recovering: Option<Recovering>,
    recoveries: usize,
    steps: usize,
    found: Findings,
}

impl Walk<'_> {
    fn run(&mut self) {
        let mut place = NETWORK.start(Rule::Start);
        loop {
            let is_end = NETWORK.states[place].role == Role::Stop;
            let outcome = if is_end { Ok(None) } else { self.step(place).map(Some) };
            match outcome {
                Ok(Some(next)) => {
                    place = next;
                    continue;
                }
                Ok(None) => {}
                Err(left) => {
                    if self.leave(&left, NETWORK.states[place].rule).is_err() {
                        self.found.is_complete = false;
                        self.found.read_until = self.words.get(self.at).map_or(self.text.len(), |word| word.end);
                        return;
                    }
                }
            }
            let Some(frame) = self.frames.pop() else { return };
            self.state = frame.caller;
            place = frame.follow;
        }
    }

    /// From one state to the next.
    fn step(&mut self, place: usize) -> Result<usize, Left> {
        let state = &NETWORK.states[place];
        match state.role {
            Role::Plain | Role::Stop => {}
            Role::StarBack => {
                self.state = place;
                self.drop_unwanted();
                let Some(Edge::Free(entry)) = state.edges.first() else { return Err(Left::Over) };
                self.entry_done(state.rule);
                return self.branch(*entry);
            }
            Role::PlusBack(_) => {
                self.state = place;
                self.drop_unwanted();
                return self.branch(place);
            }
            Role::Block(_) | Role::StarEntry(_) | Role::PlusBlock => {
                self.state = place;
                self.check_next()?;
                self.entry_done(state.rule);
                return self.branch(place);
            }
        }
        match *state.edges.first().ok_or(Left::Over)? {
            Edge::Free(to) | Edge::Rank(_, to) => Ok(to),
            Edge::Token { kinds, variable, to } => {
                self.state = place;
                self.take(kinds, variable, to)?;
                Ok(to)
            }
            Edge::Call { rule, rank, follow } => {
                self.state = place;
                if self.frames.len() >= RULES_MAX {
                    return Err(Left::Over);
                }
                self.frames.push(Frame { caller: place, follow, rank, reserved: self.found.reserved.len() });
                Ok(NETWORK.start(rule))
            }
        }
    }

    /// Entries of maps and objects count once they are whole.
    fn entry_done(&mut self, rule: Rule) {
        let count = self.found.reserved.len();
        if let (Rule::Entries | Rule::Fields, Some(frame)) = (rule, self.frames.last_mut()) {
            frame.reserved = count;
        }
    }

    /// Into the branch that the next words take.
    fn branch(&mut self, place: usize) -> Result<usize, Left> {
        let state = &NETWORK.states[place];
        let choose = match state.role {
            Role::Block(choose) | Role::StarEntry(choose) | Role::PlusBack(choose) => choose,
            _ => Choose::Next,
        };
        let edge = match choose {
            Choose::Next => self.by_next(place)?,
            Choose::Rank => usize::from(!self.fits_rank(place)),
            Choose::Ahead => {
                let returns: Vec<usize> = self.frames.iter().map(|frame| frame.follow).collect();
                predict(place, &self.kinds, self.at, &returns, &mut self.steps).map_err(|stuck| match stuck {
                    Stuck::At(word) => Left::NoBranch(self.at, word),
                    Stuck::Steps => Left::Over,
                })?
            }
        };
        match state.edges.get(edge) {
            Some(Edge::Free(to)) => Ok(*to),
            _ => Err(Left::Over),
        }
    }

    fn by_next(&self, place: usize) -> Result<usize, Left> {
        let state = &NETWORK.states[place];
        let fits = |edge: &Edge| match edge {
            Edge::Free(to) => NETWORK.states[*to].next & self.kind() != 0,
            _ => false,
        };
        let found = state.edges.iter().position(fits);
        match (state.role, state.edges.len()) {
            (Role::PlusBlock, _) => Ok(0),
            // A loop or an option is passed where nothing of it comes.
            (Role::StarEntry(_) | Role::PlusBack(_), _) => Ok(if found == Some(0) { 0 } else { 1 }),
            (Role::Block(_), 2) if state.rule != Rule::FieldName => Ok(if found == Some(0) { 0 } else { 1 }),
            _ => found.ok_or(Left::NoBranch(self.at, self.at)),
        }
    }

    /// Whether an operator comes that may stand here.
    fn fits_rank(&self, place: usize) -> bool {
        let rank = self.frames.last().map_or(0, |frame| frame.rank);
        let mut open = vec![place];
        let mut is_first = true;
        while let Some(state) = open.pop() {
            // The second edge of the loop leads past it.
            let count = if is_first { 1 } else { usize::MAX };
            is_first = false;
            for edge in NETWORK.states[state].edges.iter().take(count) {
                match edge {
                    Edge::Free(to) => open.push(*to),
                    Edge::Rank(own, to) if *own >= rank && NETWORK.states[*to].next & self.kind() != 0 => return true,
                    _ => {}
                }
            }
        }
        false
    }

    fn kind(&self) -> Kinds {
        self.kinds.get(self.at).copied().unwrap_or(END)
    }

    fn following(&self) -> Kinds {
        self.kinds.get(self.at + 1).copied().unwrap_or(END)
    }

    fn consume(&mut self) {
        self.at = (self.at + 1).min(self.kinds.len().saturating_sub(1));
    }

    fn expected(&self, state: usize) -> Kinds {
        NETWORK.expected(state, self.frames.iter().map(|frame| frame.follow))
    }

    /// What some rule that is being read goes on with.
    fn follows(&self) -> Kinds {
        self.frames.iter().fold(0, |all, frame| all | NETWORK.states[frame.follow].next) & !RULE_END
    }

    fn take(&mut self, kinds: Kinds, variable: bool, to: usize) -> Result<(), Left> {
        if self.kind() & kinds != 0 {
            self.recovering = None;
            self.matched(variable);
            return Ok(());
        }
        self.count_recovery()?;
        if self.without_one_word() {
            self.matched(variable);
            return Ok(());
        }
        // As if the missing word were there.
        if self.expected(to) & self.kind() != 0 {
            let wanted = grammar::shown(self.expected(self.state));
            self.tell(self.at, |found| Problem::Missing { found, wanted });
            return Ok(());
        }
        Err(Left::Mismatch)
    }

    fn matched(&mut self, variable: bool) {
        if let (true, Some(Word { token: Token::Name(name), at, .. })) = (variable, self.words.get(self.at))
            && WORDS.contains(&name.as_str())
        {
            self.found.reserved.push(Issue::new(*at, Problem::Reserved(name.clone())));
        }
        self.consume();
    }

    /// Leaves the next word out if the one after it fits.
    fn without_one_word(&mut self) -> bool {
        let expected = self.expected(self.state);
        let fits = expected & self.following() != 0;
        if fits {
            self.tell(self.at, |found| Problem::Extraneous { found, wanted: grammar::shown(expected) });
            self.consume();
            self.recovering = None;
        }
        fits
    }

    /// Before a branch: whether one of them can begin with the next word.
    fn check_next(&mut self) -> Result<(), Left> {
        let next = NETWORK.states[self.state].next;
        if self.recovering.is_some() || next & (RULE_END | self.kind()) != 0 || self.without_one_word() {
            return Ok(());
        }
        Err(Left::Mismatch)
    }

    /// Behind a round of a loop: skips what neither begins another one nor follows.
    fn drop_unwanted(&mut self) {
        let next = NETWORK.states[self.state].next;
        if self.recovering.is_some() || next & (RULE_END | self.kind()) != 0 {
            return;
        }
        let expected = self.expected(self.state);
        self.tell(self.at, |found| Problem::Extraneous { found, wanted: grammar::shown(expected) });
        let wanted = expected | self.follows() | END;
        while self.kind() & wanted == 0 {
            self.consume();
        }
    }

    /// Tells why the rule is left, and skips to where one of those further out can go on.
    fn leave(&mut self, left: &Left, rule: Rule) -> Result<(), Left> {
        match left {
            Left::Mismatch => {
                let wanted = grammar::shown(self.expected(self.state));
                self.tell(self.at, |found| Problem::Mismatched { found, wanted });
            }
            Left::NoBranch(first, last) => {
                let problem = self.no_branch(*first, *last);
                self.tell(*last, |_| problem);
            }
            Left::Over => return Err(Left::Over),
        }
        if let (Rule::Entries | Rule::Fields, Some(frame)) = (rule, self.frames.last()) {
            self.found.reserved.truncate(frame.reserved);
        }
        self.count_recovery()?;
        let mut skipped = 0;
        let (at, state) = (self.at, self.state);
        let recovering = self.recovering.get_or_insert_default();
        // The second time at the same place the word is in nobody's way but cannot be read.
        let stuck = matches!(&recovering.last, Some((last, states)) if *last == at && states.contains(&state));
        if stuck {
            self.consume();
            skipped += 1;
        }
        let at = self.at;
        let last = &mut self.recovering.get_or_insert_default().last;
        match last {
            Some((index, states)) => {
                *index = at;
                states.push(state);
            }
            None => *last = Some((at, vec![state])),
        }
        let wanted = self.follows() | END;
        while self.kind() & wanted == 0 {
            if skipped >= self.limits.skipped_max {
                self.found.syntax.push(Issue::new(0, Problem::Skipped(self.limits.skipped_max)));
                return Err(Left::Over);
            }
            self.consume();
            skipped += 1;
        }
        Ok(())
    }

    fn count_recovery(&mut self) -> Result<(), Left> {
        if self.recoveries == self.limits.recoveries_max {
            let place = self.words.get(self.at).map_or(self.text.len(), |word| word.at);
            self.found.syntax.push(Issue::new(place, Problem::Recoveries(self.limits.recoveries_max)));
            return Err(Left::Over);
        }
        self.recoveries += 1;
        Ok(())
    }

    /// One mistake is told until a word fits again.
    fn tell(&mut self, word: usize, problem: impl FnOnce(String) -> Problem) {
        if self.recovering.is_some() {
            return;
        }
        self.recovering = Some(Recovering::default());
        let (found, place) = match self.words.get(word) {
            Some(Word { token: Token::End, at, .. }) => ("<EOF>".to_owned(), *at),
            Some(word) => (escaped(&self.text[word.at..word.end]), word.at),
            None => ("<EOF>".to_owned(), self.text.len()),
        };
        self.found.syntax.push(Issue::new(place, problem(found)));
    }

    /// The text of the words, with what is between them as far as it can be read.
    fn no_branch(&self, first: usize, last: usize) -> Problem {
        let from = self.words.get(first).map_or(self.text.len(), |word| word.at);
        let until = self.words.get(last).map_or(self.text.len(), |word| word.end);
        if self.kinds.get(first) == Some(&END) {
            return Problem::NoAlternative("<EOF>".to_owned());
        }
        let letters = self.text[from..until].char_indices().filter(|(at, _)| {
            let at = from + at;
            !self.skipped.iter().any(|(start, end)| (*start..*end).contains(&at))
        });
        let text: String = letters.map(|(_, letter)| letter).collect();
        // Upstream's parser has one sentence of its own for these words.
        let word = text.char_indices().nth(1).map_or("", |(at, _)| &text[at..]);
        if matches!(word, "true" | "false" | "null") {
            return Problem::Mismatched { found: word.to_owned(), wanted: "IDENTIFIER".to_owned() };
        }
        Problem::NoAlternative(escaped(&text))
    }
}

fn escaped(text: &str) -> String {
    text.replace('\t', "\\t").replace('\n', "\\n").replace('\r', "\\r")
}
