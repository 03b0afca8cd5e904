//! The grammar of expressions as a network of states, the form in which upstream's generated parser holds it. Only
//! expressions that could not be parsed are walked through it (`recovery.rs`): what is wrong with them is told by what a
//! state expects.

use std::sync::LazyLock;

/// Kinds of words as bits, in the order in which messages list them.
pub(super) type Kinds = u64;

/// The name of each kind's bit in messages.
const NAMES: &[&str] = &[
    "<EOF>",
    "'=='",
    "'!='",
    "'in'",
    "'<'",
    "'<='",
    "'>='",
    "'>'",
    "'&&'",
    "'||'",
    "'['",
    "']'",
    "'{'",
    "'}'",
    "'('",
    "')'",
    "'.'",
    "','",
    "'-'",
    "'!'",
    "'?'",
    "':'",
    "'+'",
    "'*'",
    "'/'",
    "'%'",
    "'true'",
    "'false'",
    "'null'",
    "NUM_FLOAT",
    "NUM_INT",
    "NUM_UINT",
    "STRING",
    "BYTES",
    "IDENTIFIER",
    "ESC_IDENTIFIER",
];

pub(super) const END: Kinds = 1;
/// The rule can end here.
pub(super) const RULE_END: Kinds = 1 << 63;
pub(super) const FLOAT: Kinds = 1 << 29;
pub(super) const INT: Kinds = 1 << 30;
pub(super) const UINT: Kinds = 1 << 31;
pub(super) const TEXT: Kinds = 1 << 32;
pub(super) const BYTES: Kinds = 1 << 33;
pub(super) const NAME: Kinds = 1 << 34;
pub(super) const QUOTED: Kinds = 1 << 35;
const QUESTION: Kinds = 1 << 20;
const COMMA: Kinds = 1 << 17;
const COLON: Kinds = 1 << 21;
const DOT: Kinds = 1 << 16;
const MINUS: Kinds = 1 << 18;

/// The kind of a sign or of a word of the language.
pub(super) fn kind_of(sign: &str) -> Option<Kinds> {
    let quoted = |name: &&str| name.strip_prefix('\'').and_then(|name| name.strip_suffix('\'')) == Some(sign);
    NAMES.iter().position(quoted).map(|at| 1 << at)
}

/// The kinds as messages list them.
pub(super) fn shown(kinds: Kinds) -> String {
    let names: Vec<&str> =
        NAMES.iter().enumerate().filter(|(at, _)| kinds & (1 << at) != 0).map(|(_, name)| *name).collect();
    if let [only] = names[..] { only.to_owned() } else { format!("{{{}}}", names.join(", ")) }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    Start,
    Expr,
    Or,
    And,
    Relation,
    Calc,
    Unary,
    Member,
    Primary,
    Exprs,
    Items,
    Fields,
    Field,
    Entries,
    FieldName,
    Item,
    Literal,
}

/// How a branch is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choose {
    /// By the next word alone.
    Next,
    /// By as many words as it takes (`predict.rs`).
    Ahead,
    /// By the next word and the rank of its operator.
    Rank,
}

enum Piece {
    Token(Kinds),
    /// A name that must not be a reserved word.
    Variable,
    Call(Rule, u8),
    /// Only operators of that rank or a higher one may follow.
    Rank(u8),
    Optional(&'static [Piece]),
    Star(Choose, &'static [Piece]),
    Plus(Choose, &'static [Piece]),
    Either(Choose, &'static [&'static [Piece]]),
}

use Choose::{Ahead, Next};
use Piece::{Call, Either, Optional, Plus, Star, Token, Variable};

const OPEN: Kinds = 1 << 14;
const CLOSE: Kinds = 1 << 15;
const LIST_OPEN: Kinds = 1 << 10;
const LIST_CLOSE: Kinds = 1 << 11;
const MAP_OPEN: Kinds = 1 << 12;
const MAP_CLOSE: Kinds = 1 << 13;

const ARGUMENTS: Piece = Optional(&[Call(Rule::Exprs, 0)]);
const LAST_COMMA: Piece = Optional(&[Token(COMMA)]);
const FIRST_DOT: Piece = Optional(&[Token(DOT)]);

/// The rules in the order of their numbers.
static RULES: &[(Rule, &[Piece])] = &[
    (Rule::Start, &[Call(Rule::Expr, 0), Token(END)]),
    (
        Rule::Expr,
        &[Call(Rule::Or, 0), Optional(&[Token(QUESTION), Call(Rule::Or, 0), Token(COLON), Call(Rule::Expr, 0)])],
    ),
    (Rule::Or, &[Call(Rule::And, 0), Star(Next, &[Token(1 << 9), Call(Rule::And, 0)])]),
    (Rule::And, &[Call(Rule::Relation, 0), Star(Next, &[Token(1 << 8), Call(Rule::Relation, 0)])]),
    (
        Rule::Relation,
        &[Call(Rule::Calc, 0), Star(Choose::Rank, &[Piece::Rank(1), Token(0b1111_1110), Call(Rule::Relation, 2)])],
    ),
    (
        Rule::Calc,
        &[
            Call(Rule::Unary, 0),
            Star(
                Choose::Rank,
                &[Either(
                    Ahead,
                    &[
                        &[Piece::Rank(2), Token(0b111 << 23), Call(Rule::Calc, 3)],
                        &[Piece::Rank(1), Token(MINUS | 1 << 22), Call(Rule::Calc, 2)],
                    ],
                )],
            ),
        ],
    ),
    (
        Rule::Unary,
        &[Either(
            Ahead,
            &[
                &[Call(Rule::Member, 0)],
                &[Plus(Next, &[Token(1 << 19)]), Call(Rule::Member, 0)],
                &[Plus(Ahead, &[Token(MINUS)]), Call(Rule::Member, 0)],
            ],
        )],
    ),
    (
        Rule::Member,
        &[
            Call(Rule::Primary, 0),
            Star(
                Choose::Rank,
                &[Either(
                    Ahead,
                    &[
                        &[Piece::Rank(3), Token(DOT), Optional(&[Token(QUESTION)]), Call(Rule::FieldName, 0)],
                        &[Piece::Rank(2), Token(DOT), Token(NAME), Token(OPEN), ARGUMENTS, Token(CLOSE)],
                        &[
                            Piece::Rank(1),
                            Token(LIST_OPEN),
                            Optional(&[Token(QUESTION)]),
                            Call(Rule::Expr, 0),
                            Token(LIST_CLOSE),
                        ],
                    ],
                )],
            ),
        ],
    ),
    (
        Rule::Primary,
        &[Either(
            Ahead,
            &[
                &[FIRST_DOT, Variable],
                &[FIRST_DOT, Variable, Token(OPEN), ARGUMENTS, Token(CLOSE)],
                &[Token(OPEN), Call(Rule::Expr, 0), Token(CLOSE)],
                &[Token(LIST_OPEN), Optional(&[Call(Rule::Items, 0)]), LAST_COMMA, Token(LIST_CLOSE)],
                &[Token(MAP_OPEN), Optional(&[Call(Rule::Entries, 0)]), LAST_COMMA, Token(MAP_CLOSE)],
                &[
                    FIRST_DOT,
                    Token(NAME),
                    Star(Next, &[Token(DOT), Token(NAME)]),
                    Token(MAP_OPEN),
                    Optional(&[Call(Rule::Fields, 0)]),
                    LAST_COMMA,
                    Token(MAP_CLOSE),
                ],
                &[Call(Rule::Literal, 0)],
            ],
        )],
    ),
    (Rule::Exprs, &[Call(Rule::Expr, 0), Star(Next, &[Token(COMMA), Call(Rule::Expr, 0)])]),
    (Rule::Items, &[Call(Rule::Item, 0), Star(Ahead, &[Token(COMMA), Call(Rule::Item, 0)])]),
    (
        Rule::Fields,
        &[
            Call(Rule::Field, 0),
            Token(COLON),
            Call(Rule::Expr, 0),
            Star(Ahead, &[Token(COMMA), Call(Rule::Field, 0), Token(COLON), Call(Rule::Expr, 0)]),
        ],
    ),
    (Rule::Field, &[Optional(&[Token(QUESTION)]), Call(Rule::FieldName, 0)]),
    (
        Rule::Entries,
        &[
            Call(Rule::Item, 0),
            Token(COLON),
            Call(Rule::Expr, 0),
            Star(Ahead, &[Token(COMMA), Call(Rule::Item, 0), Token(COLON), Call(Rule::Expr, 0)]),
        ],
    ),
    (Rule::FieldName, &[Either(Next, &[&[Token(NAME)], &[Token(QUOTED)]])]),
    (Rule::Item, &[Optional(&[Token(QUESTION)]), Call(Rule::Expr, 0)]),
    (
        Rule::Literal,
        &[Either(
            Ahead,
            &[
                &[Optional(&[Token(MINUS)]), Token(INT)],
                &[Token(UINT)],
                &[Optional(&[Token(MINUS)]), Token(FLOAT)],
                &[Token(TEXT)],
                &[Token(BYTES)],
                &[Token(1 << 26)],
                &[Token(1 << 27)],
                &[Token(1 << 28)],
            ],
        )],
    ),
];

/// What stands at a state, and so what is done about a word that does not fit there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Plain,
    /// The rule ends.
    Stop,
    /// Several branches, each an edge.
    Block(Choose),
    /// Into the loop by the first edge, past it by the second.
    StarEntry(Choose),
    StarBack,
    PlusBlock,
    /// Once more by the first edge, on by the second.
    PlusBack(Choose),
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Edge {
    Free(usize),
    Rank(u8, usize),
    Token { kinds: Kinds, variable: bool, to: usize },
    Call { rule: Rule, rank: u8, follow: usize },
}

#[derive(Debug)]
pub(super) struct State {
    pub rule: Rule,
    pub role: Role,
    pub edges: Vec<Edge>,
    /// The kinds that can come next, and whether the rule can end.
    pub next: Kinds,
}

pub(super) struct Network {
    pub states: Vec<State>,
    starts: Vec<usize>,
    /// For each rule where it is returned to.
    pub follows: Vec<Vec<usize>>,
}

pub(super) static NETWORK: LazyLock<Network> = LazyLock::new(Network::new);

impl Network {
    pub fn start(&self, rule: Rule) -> usize {
        self.starts[rule as usize]
    }

    /// What can follow the state, where the rules that called one another return to these states, the last at last.
    pub fn expected(&self, state: usize, returns: impl DoubleEndedIterator<Item = usize>) -> Kinds {
        let mut next = self.states[state].next;
        let mut all = next;
        for follow in returns.rev() {
            if next & RULE_END == 0 {
                return all & !RULE_END;
            }
            next = self.states[follow].next;
            all |= next;
        }
        let end = if next & RULE_END == 0 { 0 } else { END };
        all & !RULE_END | end
    }

    fn new() -> Network {
        let mut network = Network { states: Vec::new(), starts: Vec::new(), follows: vec![Vec::new(); RULES.len()] };
        for (rule, pieces) in RULES {
            let start = network.add(*rule, Role::Plain);
            network.starts.push(start);
            let end = network.sequence(*rule, pieces, start);
            let stop = network.add(*rule, Role::Stop);
            network.join(end, stop);
        }
        for state in &network.states {
            for edge in &state.edges {
                if let Edge::Call { rule, follow, .. } = edge {
                    network.follows[*rule as usize].push(*follow);
                }
            }
        }
        for state in 0..network.states.len() {
            network.states[state].next = network.look(state);
        }
        network
    }

    fn add(&mut self, rule: Rule, role: Role) -> usize {
        self.states.push(State { rule, role, edges: Vec::new(), next: 0 });
        self.states.len() - 1
    }

    fn join(&mut self, from: usize, to: usize) {
        self.states[from].edges.push(Edge::Free(to));
    }

    fn sequence(&mut self, rule: Rule, pieces: &[Piece], mut from: usize) -> usize {
        for piece in pieces {
            from = self.piece(rule, piece, from);
        }
        from
    }

    /// Puts the piece behind the state, and answers with the state after it.
    fn piece(&mut self, rule: Rule, piece: &Piece, from: usize) -> usize {
        let after = self.add(rule, Role::Plain);
        match piece {
            Token(kinds) => self.states[from].edges.push(Edge::Token { kinds: *kinds, variable: false, to: after }),
            Variable => self.states[from].edges.push(Edge::Token { kinds: NAME, variable: true, to: after }),
            Call(called, rank) => {
                self.states[from].edges.push(Edge::Call { rule: *called, rank: *rank, follow: after });
            }
            Piece::Rank(rank) => self.states[from].edges.push(Edge::Rank(*rank, after)),
            Optional(body) => {
                let block = self.add(rule, Role::Block(Next));
                self.join(from, block);
                self.branch(rule, block, body, after);
                self.join(block, after);
            }
            Star(choose, body) => {
                let entry = self.add(rule, Role::StarEntry(*choose));
                let back = self.add(rule, Role::StarBack);
                self.join(from, entry);
                self.branch(rule, entry, body, back);
                self.join(entry, after);
                self.join(back, entry);
            }
            Plus(choose, body) => {
                let block = self.add(rule, Role::PlusBlock);
                let back = self.add(rule, Role::PlusBack(*choose));
                self.join(from, block);
                self.branch(rule, block, body, back);
                self.join(back, block);
                self.join(back, after);
            }
            Either(choose, bodies) => {
                let block = self.add(rule, Role::Block(*choose));
                self.join(from, block);
                for body in *bodies {
                    self.branch(rule, block, body, after);
                }
            }
        }
        after
    }

    fn branch(&mut self, rule: Rule, from: usize, body: &[Piece], to: usize) {
        let start = self.add(rule, Role::Plain);
        self.join(from, start);
        let end = self.sequence(rule, body, start);
        self.join(end, to);
    }

    /// No rule is empty, and no loop comes back without a word.
    fn look(&self, state: usize) -> Kinds {
        if self.states[state].role == Role::Stop {
            return RULE_END;
        }
        let kinds = self.states[state].edges.iter().map(|edge| match edge {
            Edge::Free(to) | Edge::Rank(_, to) => self.look(*to),
            Edge::Token { kinds, .. } => *kinds,
            Edge::Call { rule, .. } => self.look(self.start(*rule)),
        });
        kinds.fold(0, |all, kinds| all | kinds)
    }
}
