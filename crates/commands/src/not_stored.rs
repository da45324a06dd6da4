//! Collections that clients see and that are stored in another form: `config.transactions`, and in a set of several
//! `local.system.replset`.
//!
//! Always true: nobody writes to them by their names.

use crate::context::Context;
use crate::transactions::records;
use bson::RawDocumentBuf;
use catalog::Namespace;
use errors::Result;

/// The documents of a collection that is stored in another form.
pub(crate) fn collection(
    context: &Context<'_>,
    namespace: &Namespace,
) -> Result<Option<Vec<RawDocumentBuf>>> {
    match namespace.as_str() {
        Namespace::TRANSACTIONS => records(context.service).map(Some),
        Namespace::SET_CONFIGURATION => {
            set_configuration(context).map(|found| found.map(|document| vec![document]))
        }
        _ => Ok(None),
    }
}

/// The configuration that this member of a set of several goes by, as `replSetGetConfig` shows it.
pub(crate) fn set_configuration(context: &Context<'_>) -> Result<Option<RawDocumentBuf>> {
    let replication = &context.service.replication;
    let config = if replication.is_of_several() { replication.config() } else { None };
    Ok(config.map(|config| RawDocumentBuf::try_from(&config.document)).transpose()?)
}
