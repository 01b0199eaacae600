//! How a route file is written: a table of path, method, operation id, handler and description.
//!
//! ```ignore
//! pub fn routes() -> Routes {
//!     Routes::new("recents", "A user's recent searches.")
//!         .post("/v1/users/{user}/searches", "recents.add", add,
//!             doc("Remember a search").scope("produce").body::<NewSearch>().gives::<Search>(201, "Remembered")
//!                 .problems(&[ProblemKind::QuotaExceeded]))
//!         .get("/v1/users/{user}/searches", "recents.list", list,
//!             doc("The latest searches").scope("read").query::<ListQuery>().gives::<Searches>(200, "Newest first"))
//! }
//! ```
//!
//! A handler is an axum handler: a function of extractors over [`Ctx`]. Paths are literal
//! segments, `{name}`, or either with a verb behind a colon: `/searches:warm`, `/queues/{q}:purge`.

use std::future::Future;
use std::pin::Pin;

use axum::extract::Request;
use axum::handler::Handler;
use axum::response::Response;
use http::Method;
use utoipa::openapi::path::Parameter;
use utoipa::openapi::{RefOr, Schema};
use utoipa::{IntoParams, ToSchema};

use crate::app::Ctx;
use crate::problem::ProblemKind;

/// What a handler's call gives.
pub type Answer = Pin<Box<dyn Future<Output = Response> + Send>>;
type Endpoint = Box<dyn Fn(Request, Ctx) -> Answer + Send + Sync>;

/// The scopes that a key can have; `admin` opens everything.
pub const SCOPES: &[&str] = &["admin", "produce", "consume", "ingest", "storefront", "read"];

/// Who may call an operation. Checked by [`auth::Caller`](crate::auth).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Everyone.
    Public,
    /// Holders of a key that has this scope, or `admin`.
    Scope(&'static str),
    /// As [`Access::Scope`], and shoppers with a token of the tenant.
    ScopeOrShopper(&'static str),
}

/// One operation.
pub struct Route {
    /// GET, POST, …
    pub method: Method,
    /// As documented, with `{parameters}`.
    pub path: &'static str,
    /// Unique: `recents.add`.
    pub operation: &'static str,
    /// The system it belongs to.
    pub tag: &'static str,
    /// What the documentation says of it, and what it takes.
    pub doc: Doc,
    pub(crate) endpoint: Endpoint,
}

impl Route {
    /// The names of the parameters in its path, in order.
    pub fn param_names(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.path.split('{').skip(1).filter_map(|rest| Some(rest.split_once('}')?.0))
    }
}

/// What is said of an operation.
#[derive(Clone)]
pub struct Doc {
    /// In a few words.
    pub summary: &'static str,
    /// At length.
    pub description: &'static str,
    /// Who may call it.
    pub access: Access,
    /// Whether it takes an `Idempotency-Key`.
    pub idempotent: bool,
    /// Bytes of body it takes, when it is not the usual.
    pub body_bytes_max: Option<usize>,
    /// Whether HEAD follows from it, when it is a GET.
    pub(crate) has_head: bool,
    pub(crate) example: Option<&'static str>,
    pub(crate) body: Option<Content>,
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) answers: Vec<DocAnswer>,
    pub(crate) problems: Vec<ProblemKind>,
    pub(crate) schemas: Vec<(String, RefOr<Schema>)>,
}

/// A body, of a request or an answer.
#[derive(Clone)]
pub(crate) struct Content {
    pub(crate) media_type: &'static str,
    pub(crate) schema: Option<RefOr<Schema>>,
}

/// An answer that is not a problem.
#[derive(Clone)]
pub(crate) struct DocAnswer {
    pub(crate) status: u16,
    pub(crate) what: &'static str,
    pub(crate) content: Option<Content>,
}

/// Begins the description of an operation. Nobody but `admin` may call it until it says who.
#[must_use]
pub fn doc(summary: &'static str) -> Doc {
    Doc {
        summary,
        description: "",
        access: Access::Scope("admin"),
        idempotent: false,
        body_bytes_max: None,
        has_head: true,
        example: None,
        body: None,
        parameters: Vec::new(),
        answers: Vec::new(),
        problems: Vec::new(),
        schemas: Vec::new(),
    }
}

impl Doc {
    /// Says more, in Markdown's plain parts.
    #[must_use]
    pub fn text(mut self, description: &'static str) -> Doc {
        self.description = description;
        self
    }

    /// Everyone may call it.
    #[must_use]
    pub fn public(mut self) -> Doc {
        self.access = Access::Public;
        self
    }

    /// Keys with this scope (one of [`SCOPES`]) may call it.
    #[must_use]
    pub fn scope(mut self, scope: &'static str) -> Doc {
        self.access = Access::Scope(scope);
        self
    }

    /// Keys with this scope and shoppers may call it.
    #[must_use]
    pub fn scope_or_shopper(mut self, scope: &'static str) -> Doc {
        self.access = Access::ScopeOrShopper(scope);
        self
    }

    /// It takes an `Idempotency-Key`.
    #[must_use]
    pub fn idempotent(mut self) -> Doc {
        self.idempotent = true;
        self
    }

    /// A GET that changes something: whoever asks for the head alone would not see what it did.
    #[must_use]
    pub fn without_head(mut self) -> Doc {
        self.has_head = false;
        self
    }

    /// It takes bodies up to this size instead of the usual.
    #[must_use]
    pub fn body_bytes_max(mut self, bytes: usize) -> Doc {
        self.body_bytes_max = Some(bytes);
        self
    }

    /// An example of the body, or of the query of a GET, for the documentation. It works against a
    /// server on which the examples before it were run.
    #[must_use]
    pub fn example(mut self, text: &'static str) -> Doc {
        self.example = Some(text);
        self
    }

    /// The JSON it takes.
    #[must_use]
    pub fn body<T: ToSchema>(mut self) -> Doc {
        let schema = self.schema::<T>();
        self.body = Some(Content { media_type: "application/json", schema: Some(schema) });
        self
    }

    /// The query parameters it takes.
    #[must_use]
    pub fn query<T: IntoParams>(mut self) -> Doc {
        let place = || Some(utoipa::openapi::path::ParameterIn::Query);
        self.parameters.extend(T::into_params(place));
        self
    }

    /// An answer with JSON.
    #[must_use]
    pub fn gives<T: ToSchema>(mut self, status: u16, what: &'static str) -> Doc {
        let schema = self.schema::<T>();
        let content = Some(Content { media_type: "application/json", schema: Some(schema) });
        self.answers.push(DocAnswer { status, what, content });
        self
    }

    /// An answer of another media type.
    #[must_use]
    pub fn gives_other(mut self, status: u16, media_type: &'static str, what: &'static str) -> Doc {
        let content = Some(Content { media_type, schema: None });
        self.answers.push(DocAnswer { status, what, content });
        self
    }

    /// An answer without a body.
    #[must_use]
    pub fn gives_nothing(mut self, status: u16, what: &'static str) -> Doc {
        self.answers.push(DocAnswer { status, what, content: None });
        self
    }

    /// Problems of its own. Those that follow from its access, body, parameters and key are
    /// added by themselves.
    #[must_use]
    pub fn problems(mut self, kinds: &[ProblemKind]) -> Doc {
        self.problems.extend_from_slice(kinds);
        self
    }

    fn schema<T: ToSchema>(&mut self) -> RefOr<Schema> {
        let name = T::name().into_owned();
        T::schemas(&mut self.schemas);
        self.schemas.push((name.clone(), T::schema()));
        utoipa::openapi::Ref::from_schema_name(name).into()
    }
}

/// The operations of one system.
pub struct Routes {
    pub(crate) tag: &'static str,
    pub(crate) about: &'static str,
    pub(crate) list: Vec<Route>,
}

impl Routes {
    /// An empty table for a system.
    #[must_use]
    pub fn new(tag: &'static str, about: &'static str) -> Routes {
        Routes { tag, about, list: Vec::new() }
    }

    /// Adds an operation.
    #[must_use]
    pub fn on<H, T>(
        mut self,
        method: Method,
        path: &'static str,
        operation: &'static str,
        handler: H,
        doc: Doc,
    ) -> Routes
    where
        H: Handler<T, Ctx, Future = Answer> + Sync,
        T: 'static,
    {
        let endpoint: Endpoint = Box::new(move |request, ctx| handler.clone().call(request, ctx));
        self.list.push(Route { method, path, operation, tag: self.tag, doc, endpoint });
        self
    }
}

macro_rules! methods {
    ($($name:ident $method:ident $text:literal;)+) => {
        impl Routes {
            $(
                #[doc = concat!("Adds a ", $text, ".")]
                #[must_use]
                pub fn $name<H, T>(
                    self,
                    path: &'static str,
                    operation: &'static str,
                    handler: H,
                    doc: Doc,
                ) -> Routes
                where
                    H: Handler<T, Ctx, Future = Answer> + Sync,
                    T: 'static,
                {
                    self.on(Method::$method, path, operation, handler, doc)
                }
            )+
        }
    };
}

methods! {
    get GET "GET; HEAD follows from it, unless [`Doc::without_head`]";
    post POST "POST";
    put PUT "PUT";
    patch PATCH "PATCH";
    delete DELETE "DELETE";
}
