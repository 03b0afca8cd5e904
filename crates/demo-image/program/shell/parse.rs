//! From text to statements.

use crate::error::Result;

pub enum Statement {
    Simple(Simple),
    And(Box<Statement>, Box<Statement>),
    Or(Box<Statement>, Box<Statement>),
    While { condition: Vec<Statement>, until: bool, body: Vec<Statement> },
    If { condition: Vec<Statement>, then: Vec<Statement>, otherwise: Vec<Statement> },
    For { name: String, words: Vec<Word>, body: Vec<Statement> },
}

#[derive(Default)]
pub struct Simple {
    pub assignments: Vec<(String, Word)>,
    pub words: Vec<Word>,
    pub redirections: Vec<Redirection>,
}

pub struct Redirection {
    pub stream: u8,
    pub append: bool,
    /// The target is the number of another stream.
    pub copies: bool,
    pub target: Word,
}

#[derive(Clone, Default)]
pub struct Word {
    pub parts: Vec<Part>,
    quoted: bool,
}

#[derive(Clone)]
pub enum Part {
    Text(String),
    Variable { name: String, quoted: bool },
    Command(String),
}

impl Word {
    /// The text of a word that could be a keyword: nothing in it is quoted or a variable.
    fn plain(&self) -> Option<&str> {
        match self.parts.as_slice() {
            [Part::Text(text)] if !self.quoted => Some(text),
            _ => None,
        }
    }

    fn push(&mut self, character: char) {
        match self.parts.last_mut() {
            Some(Part::Text(text)) => text.push(character),
            _ => self.parts.push(Part::Text(character.to_string())),
        }
    }
}

enum Token {
    Word(Word),
    Semicolon,
    And,
    Or,
    Redirect { stream: u8, append: bool, copies: bool },
}

pub fn parse(script: &str) -> Result<Vec<Statement>> {
    let mut parser = Parser { tokens: tokens(script)?, at: 0 };
    let statements = parser.list(&[])?;
    if parser.at == parser.tokens.len() { Ok(statements) } else { Err("unexpected end of a block".into()) }
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
}

impl Parser {
    fn keyword(&self) -> Option<&str> {
        match self.tokens.get(self.at)? {
            Token::Word(word) => word.plain(),
            _ => None,
        }
    }

    fn expect(&mut self, keyword: &str) -> Result<()> {
        while matches!(self.tokens.get(self.at), Some(Token::Semicolon)) {
            self.at += 1;
        }
        if self.keyword() != Some(keyword) {
            return Err(format!("{keyword:?} is missing").into());
        }
        self.at += 1;
        Ok(())
    }

    /// Statements until one of these keywords, which is left there.
    fn list(&mut self, ends: &[&str]) -> Result<Vec<Statement>> {
        let mut statements = Vec::new();
        while self.at < self.tokens.len() {
            if matches!(self.tokens[self.at], Token::Semicolon) {
                self.at += 1;
                continue;
            }
            if self.keyword().is_some_and(|keyword| ends.contains(&keyword)) {
                break;
            }
            statements.push(self.chain()?);
        }
        Ok(statements)
    }

    fn chain(&mut self) -> Result<Statement> {
        let mut left = self.statement()?;
        loop {
            let and = match self.tokens.get(self.at) {
                Some(Token::And) => true,
                Some(Token::Or) => false,
                _ => return Ok(left),
            };
            self.at += 1;
            let right = Box::new(self.statement()?);
            left = if and { Statement::And(Box::new(left), right) } else { Statement::Or(Box::new(left), right) };
        }
    }

    fn statement(&mut self) -> Result<Statement> {
        match self.keyword() {
            Some(keyword @ ("while" | "until")) => {
                let until = keyword == "until";
                self.at += 1;
                let condition = self.list(&["do"])?;
                Ok(Statement::While { condition, until, body: self.body()? })
            }
            Some("if") => {
                self.at += 1;
                let condition = self.list(&["then"])?;
                self.expect("then")?;
                self.branches(condition)
            }
            Some("for") => {
                self.at += 1;
                let name = self.keyword().ok_or("for needs a name")?.to_owned();
                self.at += 1;
                self.expect("in")?;
                let mut words = Vec::new();
                while let Some(Token::Word(word)) = self.tokens.get(self.at) {
                    words.push(word.clone());
                    self.at += 1;
                }
                Ok(Statement::For { name, words, body: self.body()? })
            }
            _ => self.simple(),
        }
    }

    fn branches(&mut self, condition: Vec<Statement>) -> Result<Statement> {
        let then = self.list(&["else", "elif", "fi"])?;
        let otherwise = match self.keyword() {
            Some("else") => {
                self.at += 1;
                let otherwise = self.list(&["fi"])?;
                self.expect("fi")?;
                otherwise
            }
            Some("elif") => {
                self.at += 1;
                let condition = self.list(&["then"])?;
                self.expect("then")?;
                vec![self.branches(condition)?]
            }
            _ => {
                self.expect("fi")?;
                Vec::new()
            }
        };
        Ok(Statement::If { condition, then, otherwise })
    }

    fn body(&mut self) -> Result<Vec<Statement>> {
        self.expect("do")?;
        let body = self.list(&["done"])?;
        self.expect("done")?;
        Ok(body)
    }

    fn simple(&mut self) -> Result<Statement> {
        let mut simple = Simple::default();
        loop {
            match self.tokens.get(self.at) {
                Some(Token::Word(word)) => {
                    match assignment(word).filter(|_| simple.words.is_empty()) {
                        Some(assignment) => simple.assignments.push(assignment),
                        None => simple.words.push(word.clone()),
                    }
                    self.at += 1;
                }
                Some(Token::Redirect { stream, append, copies }) => {
                    let (stream, append, copies) = (*stream, *append, *copies);
                    let Some(Token::Word(target)) = self.tokens.get(self.at + 1) else {
                        return Err("a redirection needs a file".into());
                    };
                    simple.redirections.push(Redirection { stream, append, copies, target: target.clone() });
                    self.at += 2;
                }
                _ => break,
            }
        }
        if simple.words.is_empty() && simple.assignments.is_empty() && simple.redirections.is_empty() {
            Err("a command is missing".into())
        } else {
            Ok(Statement::Simple(simple))
        }
    }
}

fn assignment(word: &Word) -> Option<(String, Word)> {
    let Some(Part::Text(text)) = word.parts.first() else { return None };
    let (name, value) = text.split_once('=')?;
    if name.is_empty() || !name.chars().all(is_name) || name.starts_with(|first: char| first.is_ascii_digit()) {
        return None;
    }
    let mut rest = word.clone();
    rest.parts[0] = Part::Text(value.to_owned());
    Some((name.to_owned(), rest))
}

fn is_name(character: char) -> bool {
    character.is_ascii_alphanumeric() || character == '_'
}

type Characters<'a> = std::iter::Peekable<std::str::Chars<'a>>;

fn tokens(script: &str) -> Result<Vec<Token>> {
    let mut tokens = Vec::new();
    let mut word: Option<Word> = None;
    let mut characters = script.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            ' ' | '\t' => tokens.extend(word.take().map(Token::Word)),
            ';' | '\n' => {
                tokens.extend(word.take().map(Token::Word));
                tokens.push(Token::Semicolon);
            }
            '#' if word.is_none() => while characters.next_if(|next| *next != '\n').is_some() {},
            '&' if characters.next_if_eq(&'&').is_some() => {
                tokens.extend(word.take().map(Token::Word));
                tokens.push(Token::And);
            }
            '|' if characters.next_if_eq(&'|').is_some() => {
                tokens.extend(word.take().map(Token::Word));
                tokens.push(Token::Or);
            }
            '&' | '|' | '(' | ')' | '`' => {
                return Err(format!("{character:?} is more than this shell understands").into());
            }
            '>' | '<' => {
                // A number right before it names the stream.
                let number = word.as_ref().and_then(Word::plain).and_then(|text| text.parse().ok());
                let number: Option<u8> = number.filter(|number| *number <= 2);
                match number {
                    Some(_) => word = None,
                    None => tokens.extend(word.take().map(Token::Word)),
                }
                let append = character == '>' && characters.next_if_eq(&'>').is_some();
                let copies = characters.next_if_eq(&'&').is_some();
                tokens.push(Token::Redirect { stream: number.unwrap_or(u8::from(character == '>')), append, copies });
            }
            '\'' => {
                let word = word.get_or_insert_default();
                word.quoted = true;
                word.parts.push(Part::Text(String::new()));
                loop {
                    match characters.next().ok_or("a quote is not closed")? {
                        '\'' => break,
                        character => word.push(character),
                    }
                }
            }
            '"' => {
                let word = word.get_or_insert_default();
                word.quoted = true;
                word.parts.push(Part::Text(String::new()));
                double_quoted(&mut characters, word)?;
            }
            '\\' => match characters.next() {
                Some('\n') | None => {}
                Some(character) => {
                    let word = word.get_or_insert_default();
                    word.quoted = true;
                    word.push(character);
                }
            },
            '$' => variable(&mut characters, word.get_or_insert_default(), false)?,
            character => word.get_or_insert_default().push(character),
        }
    }
    tokens.extend(word.map(Token::Word));
    Ok(tokens)
}

fn double_quoted(characters: &mut Characters, word: &mut Word) -> Result<()> {
    loop {
        match characters.next().ok_or("a quote is not closed")? {
            '"' => return Ok(()),
            '$' => variable(characters, word, true)?,
            '\\' => match characters.next().ok_or("a quote is not closed")? {
                character @ ('"' | '\\' | '$' | '`') => word.push(character),
                character => {
                    word.push('\\');
                    word.push(character);
                }
            },
            character => word.push(character),
        }
    }
}

fn variable(characters: &mut Characters, word: &mut Word, quoted: bool) -> Result<()> {
    let mut name = String::new();
    if characters.next_if_eq(&'(').is_some() {
        let mut depth = 1;
        loop {
            match characters.next().ok_or("$( is not closed")? {
                ')' if depth == 1 => break,
                character => {
                    depth += i32::from(character == '(') - i32::from(character == ')');
                    name.push(character);
                }
            }
        }
        word.parts.push(Part::Command(name));
        return Ok(());
    }
    if characters.next_if_eq(&'{').is_some() {
        loop {
            match characters.next().ok_or("${ is not closed")? {
                '}' => break,
                character => name.push(character),
            }
        }
    } else if let Some(special) = characters.next_if(|next| matches!(next, '?' | '$')) {
        name.push(special);
    } else {
        while let Some(character) = characters.next_if(|next| is_name(*next)) {
            name.push(character);
        }
    }
    if name.is_empty() {
        word.push('$')
    } else {
        word.parts.push(Part::Variable { name, quoted })
    }
    Ok(())
}
