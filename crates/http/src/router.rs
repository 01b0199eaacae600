//! How a path finds its route.
//!
//! A tree of segments. In a segment a literal wins over `{name}:verb`, and that over `{name}`;
//! when a branch leads nowhere the next one is tried. So `/searches/history` is the literal and
//! `/searches/anything` the parameter, and a colon in a parameter only means a verb where one is
//! registered. There it means the verb whatever the method is: `GET /queues/a:purge` is no look at a
//! queue called `a:purge`. A parameter that may end like that is spelt with `%3A`.

use http::{HeaderValue, Method};

use crate::limits::{PATH_PARAMS_MAX, URI_BYTES_MAX};
use crate::route::{Route, Routes};

/// Where the parameters are in a path, as byte ranges.
#[derive(Clone, Copy, Debug, Default)]
pub struct Params {
    ranges: [(u16, u16); PATH_PARAMS_MAX],
    count: u8,
}

const _: () = assert!(URI_BYTES_MAX <= u16::MAX as usize, "ranges are 16 bits wide");

impl Params {
    /// The raw text of each parameter, in order.
    pub fn texts<'a>(&self, path: &'a str) -> impl ExactSizeIterator<Item = &'a str> + use<'a> {
        let Params { ranges, count } = *self;
        (0..usize::from(count)).map(move |i| &path[ranges[i].0.into()..ranges[i].1.into()])
    }

    fn push(&mut self, start: usize, end: usize) {
        let place = |n: usize| u16::try_from(n).expect("the path is no longer than URI_BYTES_MAX");
        self.ranges[usize::from(self.count)] = (place(start), place(end));
        self.count += 1;
    }
}

/// What a method and a path lead to.
#[derive(Debug)]
pub enum Found<'a> {
    /// The route of this number.
    Route(u32, Params),
    /// The path exists.
    OtherMethods {
        /// Its methods.
        allow: &'a HeaderValue,
        /// Whether its last segment is a name of the caller's, the colon in it too.
        ends_in_name: bool,
    },
    /// Nothing.
    Nothing,
}

#[derive(Default)]
struct Node {
    literals: Vec<(&'static str, usize)>,
    verbs: Vec<(&'static str, usize)>,
    param: Option<usize>,
    methods: Vec<(Method, u32)>,
    allow: Option<HeaderValue>,
    /// Whether the whole segment that leads here is a parameter.
    is_name: bool,
}

/// All routes.
pub struct Router {
    tables: Vec<(&'static str, &'static str)>,
    routes: Vec<Route>,
    nodes: Vec<Node>,
}

impl Node {
    fn number(&self, method: &Method) -> Option<u32> {
        self.methods.iter().find(|(m, _)| m == method).map(|(_, number)| *number)
    }

    fn takes(&self, method: Option<&Method>) -> bool {
        match method {
            Some(method) => self.number(method).is_some(),
            None => !self.methods.is_empty(),
        }
    }
}

impl Router {
    /// The router of these tables.
    ///
    /// # Panics
    /// When two routes have the same method and path or the same operation id, or a path is not
    /// one: a mistake in a route file, which every test that builds an app would show.
    #[must_use]
    pub fn new(tables: Vec<Routes>) -> Router {
        let mut router = Router {
            tables: tables.iter().map(|table| (table.tag, table.about)).collect(),
            routes: Vec::new(),
            nodes: vec![Node::default()],
        };
        for route in tables.into_iter().flat_map(|table| table.list) {
            router.add(route);
        }
        for node in &mut router.nodes {
            node.literals.sort_unstable();
            node.allow = allow(&node.methods, &router.routes);
        }
        router
    }

    /// Every route, in the order of the tables.
    #[must_use]
    pub fn routes(&self) -> &[Route] {
        &self.routes
    }

    /// Every system's name and description.
    #[must_use]
    pub fn tables(&self) -> &[(&'static str, &'static str)] {
        &self.tables
    }

    pub(crate) fn route(&self, number: u32) -> &Route {
        &self.routes[number as usize]
    }

    fn add(&mut self, route: Route) {
        let Route { path, operation, .. } = route;
        assert!(path.starts_with('/'), "{path} does not begin with a slash");
        assert!(self.routes.iter().all(|r| r.operation != operation), "{operation} is there twice");
        assert!(route.param_names().count() <= PATH_PARAMS_MAX, "{path} has too many parameters");
        let number = u32::try_from(self.routes.len()).expect("few routes");
        let mut node = 0;
        for segment in path[1..].split('/') {
            node = self.child(node, segment);
        }
        let methods = &mut self.nodes[node].methods;
        assert!(
            methods.iter().all(|(m, _)| *m != route.method),
            "{} {path} is there twice",
            route.method
        );
        methods.push((route.method.clone(), number));
        self.routes.push(route);
    }

    fn child(&mut self, node: usize, segment: &'static str) -> usize {
        let fresh = self.nodes.len();
        let found = match segment.strip_prefix('{').map(|rest| rest.split_once('}')) {
            None => named(&mut self.nodes[node].literals, segment, fresh),
            Some(Some((_, ""))) => *self.nodes[node].param.get_or_insert(fresh),
            Some(Some((_, verb))) => {
                let verb = verb.strip_prefix(':').expect("only a :verb follows a parameter");
                named(&mut self.nodes[node].verbs, verb, fresh)
            }
            Some(None) => panic!("{segment} lacks its closing brace"),
        };
        if found == fresh {
            let is_name = self.nodes[node].param == Some(fresh);
            self.nodes.push(Node { is_name, ..Node::default() });
        }
        found
    }

    /// Finds the route of a request. HEAD is GET's, where that has it.
    #[must_use]
    pub fn find(&self, method: &Method, path: &str) -> Found<'_> {
        let mut params = Params::default();
        if path.len() > URI_BYTES_MAX || !path.starts_with('/') {
            return Found::Nothing;
        }
        let is_head = *method == Method::HEAD;
        let method = if is_head { &Method::GET } else { method };
        // A literal that lacks the method does not hide a parameter that has it.
        if let Some(node) = self.walk(0, path, 1, Some(method), &mut params) {
            let number = self.nodes[node].number(method).expect("the walk looked for it");
            if !is_head || self.route(number).doc.has_head {
                return Found::Route(number, params);
            }
        }
        match self.walk(0, path, 1, None, &mut Params::default()) {
            Some(node) => {
                let Node { allow, is_name, .. } = &self.nodes[node];
                let allow = allow.as_ref().expect("it has methods");
                Found::OtherMethods { allow, ends_in_name: *is_name }
            }
            None => Found::Nothing,
        }
    }

    /// The verbs that the last segment of a path could have had, whatever it has, by name.
    #[must_use]
    pub fn verbs(&self, path: &str) -> Vec<&'static str> {
        let mut verbs = Vec::new();
        if let Some(path) = path.strip_prefix('/') {
            self.collect_verbs(0, path, &mut verbs);
        }
        verbs.sort_unstable();
        verbs.dedup();
        verbs
    }

    /// As deep as the deepest route, and two branches wide at most.
    fn collect_verbs(&self, node: usize, path: &str, verbs: &mut Vec<&'static str>) {
        let node = &self.nodes[node];
        if let Some((segment, rest)) = path.split_once('/') {
            let literal = node.literals.iter().find(|(name, _)| *name == segment);
            let param = node.param.filter(|_| !segment.is_empty());
            for child in literal.map(|(_, child)| *child).into_iter().chain(param) {
                self.collect_verbs(child, rest, verbs);
            }
            return;
        }
        let stem = path.rsplit_once(':').map_or(path, |(stem, _)| stem);
        if stem.is_empty() {
            return;
        }
        let of_literal = |(name, _): &(&'static str, usize)| {
            name.rsplit_once(':').filter(|(of, _)| *of == stem).map(|(_, verb)| verb)
        };
        verbs.extend(node.literals.iter().filter_map(of_literal));
        verbs.extend(node.verbs.iter().map(|(verb, _)| *verb));
    }

    /// Follows the path from `start` on, to a node that has the method, or any when none is given.
    /// Each call goes one level down, so it is as deep as the deepest route.
    fn walk(
        &self,
        node: usize,
        path: &str,
        start: usize,
        method: Option<&Method>,
        params: &mut Params,
    ) -> Option<usize> {
        let node = &self.nodes[node];
        let end = path[start..].find('/').map_or(path.len(), |at| start + at);
        let segment = &path[start..end];
        let on = |child: usize, params: &mut Params| {
            if end < path.len() {
                self.walk(child, path, end + 1, method, params)
            } else {
                self.nodes[child].takes(method).then_some(child)
            }
        };
        if let Ok(at) = node.literals.binary_search_by(|(name, _)| (*name).cmp(segment))
            && let Some(found) = on(node.literals[at].1, params)
        {
            return Some(found);
        }
        let before = *params;
        if !node.verbs.is_empty()
            && let Some((value, verb)) = segment.rsplit_once(':')
            && !value.is_empty()
            && let Some((_, child)) = node.verbs.iter().find(|(name, _)| *name == verb)
        {
            params.push(start, start + value.len());
            let found = on(*child, params);
            // A verb at the end of a path hides the parameter also from methods that it lacks: who
            // writes it means it.
            if found.is_some() || end == path.len() {
                return found;
            }
            *params = before;
        }
        if let Some(child) = node.param
            && !segment.is_empty()
        {
            params.push(start, end);
            if let Some(found) = on(child, params) {
                return Some(found);
            }
            *params = before;
        }
        None
    }
}

fn named(list: &mut Vec<(&'static str, usize)>, name: &'static str, fresh: usize) -> usize {
    if let Some((_, node)) = list.iter().find(|(n, _)| *n == name) {
        return *node;
    }
    list.push((name, fresh));
    fresh
}

fn allow(methods: &[(Method, u32)], routes: &[Route]) -> Option<HeaderValue> {
    if methods.is_empty() {
        return None;
    }
    let mut names: Vec<&str> = methods.iter().map(|(method, _)| method.as_str()).collect();
    let has_head = |number: u32| routes[number as usize].doc.has_head;
    if methods.iter().any(|(method, number)| *method == Method::GET && has_head(*number)) {
        names.push("HEAD");
    }
    names.push("OPTIONS");
    names.sort_unstable();
    Some(HeaderValue::from_str(&names.join(", ")).expect("method names are visible ASCII"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::doc;

    async fn nothing() {}

    fn router() -> Router {
        let paths = [
            "/",
            "/v1/queues",
            "/v1/queues/{q}",
            "/v1/queues/{q}:purge",
            "/v1/queues/{q}/messages:receive",
            "/v1/queues/{q}/messages/{h}:ack",
            "/v1/users/{u}/searches/history",
            "/v1/users/{u}/searches/{q}",
            "/v1/users/{u}/searches:warm",
            "/v1/tasks:batch",
        ];
        let routes = paths
            .into_iter()
            .fold(Routes::new("t", "T."), |routes, path| routes.get(path, path, nothing, doc("d")));
        let routes = routes.post("/v1/queues", "make", nothing, doc("d"));
        Router::new(vec![routes.post("/v1/queues/{q}:redrive", "redrive", nothing, doc("d"))])
    }

    fn check(path: &str, expect: &str) {
        let router = router();
        let found = match router.find(&Method::GET, path) {
            Found::Route(number, params) => {
                let params: Vec<&str> = params.texts(path).collect();
                format!("{} {}", router.route(number).path, params.join(" "))
            }
            Found::OtherMethods { allow, .. } => format!("{allow:?}"),
            Found::Nothing => "nothing".to_owned(),
        };
        assert_eq!(found.trim_end(), expect, "{path}");
    }

    #[test]
    fn literals_win_over_verbs_and_verbs_over_parameters() {
        check("/", "/");
        check("/v1/queues/a", "/v1/queues/{q} a");
        check("/v1/queues/a:purge", "/v1/queues/{q}:purge a");
        check("/v1/queues/a:b:purge", "/v1/queues/{q}:purge a:b");
        check("/v1/queues/a:other", "/v1/queues/{q} a:other");
        check("/v1/queues/a:purge/messages:receive", "/v1/queues/{q}/messages:receive a:purge");
        check("/v1/queues/a/messages/h:ack", "/v1/queues/{q}/messages/{h}:ack a h");
        check("/v1/users/u/searches/history", "/v1/users/{u}/searches/history u");
        check("/v1/users/u/searches/histories", "/v1/users/{u}/searches/{q} u histories");
        check("/v1/users/u/searches:warm", "/v1/users/{u}/searches:warm u");
        check("/v1/tasks:batch", "/v1/tasks:batch");
    }

    #[test]
    fn a_verb_of_another_method_hides_the_parameter() {
        check("/v1/queues/a:redrive", r#""OPTIONS, POST""#);
        check("/v1/queues/a:b:redrive", r#""OPTIONS, POST""#);
        check("/v1/queues/a%3Aredrive", "/v1/queues/{q} a%3Aredrive");
        check("/v1/queues/:redrive", "/v1/queues/{q} :redrive");
        check("/v1/queues/a:redrive/messages:receive", "/v1/queues/{q}/messages:receive a:redrive");
        check("/v1/users/u/searches/a:redrive", "/v1/users/{u}/searches/{q} u a:redrive");
    }

    #[test]
    fn verbs_are_those_of_the_place_where_a_path_ends() {
        let router = router();
        let none: [&str; 0] = [];
        assert_eq!(router.verbs("/v1/queues/a/messages:recieve"), ["receive"]);
        assert_eq!(router.verbs("/v1/queues/a/messages"), ["receive"]);
        assert_eq!(router.verbs("/v1/queues/a/messages/h:akc"), ["ack"]);
        assert_eq!(router.verbs("/v1/queues/a/messages/h"), ["ack"]);
        assert_eq!(router.verbs("/v1/queues/a:b:purg"), ["purge", "redrive"]);
        for path in ["", "*", "/", "/v1", "/v1/queues", "/v1/queues/", "/v1/queues/:x"] {
            assert_eq!(router.verbs(path), none, "{path}");
        }
        assert_eq!(router.verbs("/v1/queues//messages:x"), none);
        assert_eq!(router.verbs("/v1/queues/a/massages:receive"), none);
        assert_eq!(router.verbs("/v1/users/u/searches/a:b"), none);
    }

    #[test]
    fn what_is_not_there_is_not_found() {
        for path in ["", "*", "/v1", "/v1/", "/v1/queues/", "/v1/users//searches/a", "//v1/queues"]
        {
            check(path, "nothing");
        }
        check("/v1/queues/:purge", "/v1/queues/{q} :purge");
        check("/v1/queues/a/messages/h", "nothing");
    }

    #[test]
    fn other_methods_are_listed() {
        let router = router();
        let found = router.find(&Method::PUT, "/v1/queues");
        let all = "GET, HEAD, OPTIONS, POST";
        assert!(matches!(found, Found::OtherMethods { allow, .. } if allow == all));
        assert!(matches!(router.find(&Method::HEAD, "/v1/queues"), Found::Route(..)));
    }

    #[test]
    fn a_path_without_the_method_ends_in_a_name_only_where_a_parameter_takes_it_whole() {
        let router = router();
        for (path, expect) in [
            ("/v1/queues/a", true),
            ("/v1/queues/a:other", true),
            ("/v1/users/u/searches/a:warm", true),
            ("/v1/queues/a:purge", false),
            ("/v1/queues/a/messages:receive", false),
            ("/v1/queues/a/messages/h:ack", false),
            ("/v1/users/u/searches/history", false),
        ] {
            let found = router.find(&Method::PUT, path);
            let Found::OtherMethods { ends_in_name, .. } = found else {
                panic!("{path}: {found:?}")
            };
            assert_eq!(ends_in_name, expect, "{path}");
        }
    }
}
