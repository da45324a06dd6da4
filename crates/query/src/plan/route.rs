//! Which way a plan takes, without the values it looks for: what a plan cache remembers.

use super::{Access, AccessPath, IndexScan};
use engine::DictionaryId;

/// A way to documents. Two plans of one shape of query are the same where their routes are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// No index.
    Collection { backward: bool },
    /// One index; of a wildcard one for this path.
    Index { index: Option<DictionaryId>, path: Option<String>, backward: bool },
    /// Several, which differ; how they are put together has a name.
    Several(&'static str, Vec<Route>),
}

impl Access {
    /// The way it takes.
    pub(crate) fn route(&self) -> Route {
        match &self.path {
            AccessPath::Nothing => Route::Several("nothing", Vec::new()),
            AccessPath::Id(_) => Route::Several("id", Vec::new()),
            AccessPath::Text(_) => Route::Several("text", Vec::new()),
            AccessPath::Near(near) => Route::Several("near", vec![of_scan(&near.scan)]),
            AccessPath::Collection { backward } => Route::Collection { backward: *backward },
            AccessPath::Index(scan) => of_scan(scan),
            AccessPath::Union(branches) => several("union", branches),
            AccessPath::Merge(merge) => several("merge", &merge.branches),
            AccessPath::Intersection(scans) => {
                Route::Several("intersection", scans.iter().map(of_scan).collect())
            }
        }
    }
}

/// How many branches there are is a matter of the values: each way is kept once.
fn several(name: &'static str, branches: &[Access]) -> Route {
    let mut routes: Vec<Route> = Vec::new();
    for branch in branches {
        let route = branch.route();
        if !routes.contains(&route) {
            routes.push(route);
        }
    }
    Route::Several(name, routes)
}

fn of_scan(scan: &IndexScan) -> Route {
    let path = scan
        .expanded
        .as_ref()
        .map(|parts| parts.iter().map(|part| part.path.as_str()).collect::<Vec<_>>().join(" "));
    Route::Index {
        index: scan.index.as_ref().map(|index| index.dictionary()),
        path,
        backward: scan.backward,
    }
}
