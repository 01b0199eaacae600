//! The parameters of a path.

use axum::extract::FromRequestParts;
use http::request::Parts;

use super::percent;
use crate::app::Ctx;
use crate::problem::{Problem, ProblemKind};

/// The parameters of the path, in order: one value, or a tuple of as many as the path has.
#[derive(Clone, Copy, Debug)]
pub struct Path<T>(
    /// Them.
    pub T,
);

/// What one parameter of a path can be read as.
pub trait Segment: Sized {
    /// Reads it, or says what it must be: "a whole number".
    ///
    /// # Errors
    /// What it must be.
    fn read(text: &str) -> Result<Self, &'static str>;
}

impl Segment for String {
    fn read(text: &str) -> Result<String, &'static str> {
        Ok(text.to_owned())
    }
}

impl Segment for u32 {
    fn read(text: &str) -> Result<u32, &'static str> {
        text.parse().map_err(|_| "a whole number from 0 to 4294967295")
    }
}

impl Segment for u64 {
    fn read(text: &str) -> Result<u64, &'static str> {
        text.parse().map_err(|_| "a whole number")
    }
}

/// What all parameters of a path can be read as.
pub trait PathParams: Sized {
    /// Reads them.
    ///
    /// # Errors
    /// `invalid-parameter`.
    fn read(texts: &mut dyn Iterator<Item = (&'static str, &str)>) -> Result<Self, Problem>;
}

fn next<T: Segment>(texts: &mut dyn Iterator<Item = (&'static str, &str)>) -> Result<T, Problem> {
    let (name, raw) = texts.next().expect("the path has as many parameters as its handler takes");
    let refuse = |must: &str| {
        ProblemKind::InvalidParameter.because(format!("`{name}` in the path must be {must}"))
    };
    let text = percent::decode(raw).ok_or_else(|| refuse("percent-encoded UTF-8"))?;
    T::read(&text).map_err(refuse)
}

impl<A: Segment> PathParams for A {
    fn read(texts: &mut dyn Iterator<Item = (&'static str, &str)>) -> Result<A, Problem> {
        next(texts)
    }
}

impl<A: Segment, B: Segment> PathParams for (A, B) {
    fn read(texts: &mut dyn Iterator<Item = (&'static str, &str)>) -> Result<(A, B), Problem> {
        Ok((next(texts)?, next(texts)?))
    }
}

impl<A: Segment, B: Segment, C: Segment> PathParams for (A, B, C) {
    fn read(texts: &mut dyn Iterator<Item = (&'static str, &str)>) -> Result<(A, B, C), Problem> {
        Ok((next(texts)?, next(texts)?, next(texts)?))
    }
}

impl<T: PathParams> FromRequestParts<Ctx> for Path<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, ctx: &Ctx) -> Result<Path<T>, Problem> {
        let names = ctx.route().param_names();
        T::read(&mut names.zip(ctx.params.texts(parts.uri.path()))).map(Path)
    }
}
