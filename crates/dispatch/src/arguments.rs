//! The arguments every command takes: session, concerns, time limit, API version.
//!
//! Always true: whatever is accepted here is honoured; what the server's role decides is settled
//! in `replication`, what the session's state decides in `transactions`.

use crate::fields::{Field, as_i64, inner, inner_of};
use crate::read_concern::{self, ReadConcern};
use crate::rules::Rules;
use crate::write_concern::{self, WriteConcern};
use bson::{RawBsonRef, RawDocument, Timestamp};
use bsonval::raw::{self, Element};
use errors::{Code, Error, Result};
use session::{SessionId, UserDigest};
use smallvec::SmallVec;

/// The fields of a command that are its own.
pub type Fields<'a> = SmallVec<[Field<'a>; 12]>;

/// A transaction number, and whether a transaction goes with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbered {
    /// `txnNumber`.
    pub number: i64,
    /// `autocommit: false`: a statement of a transaction, not a retryable write.
    pub in_transaction: bool,
    /// `startTransaction: true`.
    pub starts: bool,
}

/// A time that a client brings back.
#[derive(Clone, Copy, Debug)]
pub struct SeenTime<'a> {
    /// The time.
    pub time: Timestamp,
    /// What a member signed it with.
    pub signature: Option<ClientSignature<'a>>,
}

/// A signature as a client says it.
#[derive(Clone, Copy, Debug)]
pub struct ClientSignature<'a> {
    /// What is to be the signature.
    pub hash: &'a [u8],
    /// The number of the key that made it.
    pub key_id: i64,
}

/// The generic arguments of one request.
#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "flags, as the client gives them")]
pub struct Arguments<'a> {
    /// Who sends it.
    pub user: UserDigest,
    /// `lsid`.
    pub session: Option<SessionId>,
    /// `maxTimeMS`, where it limits anything.
    pub max_time_ms: Option<u64>,
    /// `comment`.
    pub comment: Option<RawBsonRef<'a>>,
    /// `writeConcern`.
    pub write_concern: WriteConcern<'a>,
    /// The client sent a write concern at all.
    pub write_concern_given: bool,
    /// `readConcern`.
    pub read_concern: ReadConcern,
    /// The read preference lets a member answer that is not primary.
    pub secondary_ok: bool,
    /// The newest time the client has seen.
    pub cluster_time: Option<SeenTime<'a>>,
    /// The number of the session's transaction or retryable write.
    pub numbered: Option<Numbered>,
    /// `collectionUUID`: which collection the client takes it for, which the command checks.
    pub collection_uuid: Option<[u8; 16]>,
    /// `bypassDocumentValidation`, of the commands that know it.
    pub bypass_validation: bool,
    /// `bypassEmptyTsReplacement`, of the commands that know it.
    pub keep_empty_timestamps: bool,
    txn_number: Option<i64>,
    autocommit: Option<bool>,
    start_transaction: Option<bool>,
    api_version: Option<&'a str>,
    api_strict: Option<bool>,
    api_deprecation_errors: Option<bool>,
}

/// Whether a flag is set; a command that knows it refuses what is no flag.
fn is_true(value: RawBsonRef<'_>) -> bool {
    match value {
        RawBsonRef::Boolean(given) => given,
        number => as_i64(number).is_some_and(|n| n != 0),
    }
}

impl<'a> Arguments<'a> {
    /// No arguments; a session is the client's: `user`'s.
    pub fn of(user: UserDigest) -> Self {
        Self { user, ..Self::default() }
    }

    /// A command's arguments; its own fields are put into `own`.
    pub fn parse(
        command: &Rules,
        body: &'a RawDocument,
        user: UserDigest,
        own: &mut Fields<'a>,
    ) -> Result<Self> {
        let mut arguments = Self::of(user);
        arguments.read(command, body, own)?;
        Ok(arguments)
    }

    /// Divides a command's fields into its own, which are put into `own`, and the generic ones, which are put here:
    /// there must be none yet. After an error some are here.
    pub fn read(
        &mut self,
        command: &Rules,
        body: &'a RawDocument,
        own: &mut Fields<'a>,
    ) -> Result<()> {
        for element in raw::elements(body) {
            let element = element?;
            if own.is_empty() {
                // The first is the command's name, or another spelling of it.
                let is_named = element.name_bytes() == command.name.as_bytes();
                let name = if is_named { command.name } else { element.name() };
                own.push(Field { place: command.name, name, value: element.value()? });
            } else if !self.take(command, &element)?
                // The options in a dump of MongoDB 2.4 or TokuMX begin with the command's name.
                && !repeats_create(command, own, &element)?
            {
                self.take_own(command, &element, own)?;
            }
        }
        self.check_api(command)?;
        if self.is_strict()
            && let Some(field) = own.iter().skip(1).find(|f| is_unstable(command.name, f.name))
        {
            return Err(Error::new(
                Code::API_STRICT_ERROR,
                format!(
                    "BSON field '{}.{}' is not allowed with apiStrict:true.",
                    field.place, field.name
                ),
            ));
        }
        self.check_transaction()
    }

    /// Takes a field that is the command's own.
    #[inline]
    fn take_own(
        &mut self,
        command: &Rules,
        element: &Element<'a>,
        own: &mut Fields<'a>,
    ) -> Result<()> {
        let (types, value) = (command.field_types, element.value()?);
        let known = types.and_then(|types| types.find(element.name_bytes()));
        let name = known.map_or_else(|| element.name(), |(name, _)| name);
        let field = Field { place: command.name, name, value };
        match known {
            Some((_, takes)) if !takes.admit(&field)? => return Ok(()),
            None if types.is_some() => return Err(field.unknown()),
            _ => {}
        }
        if own.len() < 64 && own.iter().any(|other| other.name == field.name) {
            return Err(Error::location(
                40413,
                format!("BSON field '{}.{}' is a duplicate field", field.place, field.name),
            ));
        }
        match field.name {
            "collectionUUID" if types.is_some() => {
                self.collection_uuid = Some(field.uuid()?);
                return Ok(());
            }
            "bypassDocumentValidation" => self.bypass_validation = is_true(value),
            "bypassEmptyTsReplacement" => self.keep_empty_timestamps = is_true(value),
            _ => {}
        }
        own.push(field);
        Ok(())
    }

    /// Takes a generic field; says whether it was one. Names are compared as bytes: a client's are looked at as text
    /// only where an error shows them.
    fn take(&mut self, command: &Rules, element: &Element<'a>) -> Result<bool> {
        let field = |name| -> Result<Field<'a>> {
            Ok(Field { place: command.name, name, value: element.value()? })
        };
        match element.name_bytes() {
            b"lsid" => self.session = Some(parse_lsid(&field("lsid")?, self.user)?),
            b"comment" => self.comment = Some(element.value()?),
            // A getMore's limit bounds a tailable cursor's wait, and it checks that itself.
            b"maxTimeMS" => self.max_time_ms = parse_max_time(&field("maxTimeMS")?)?,
            b"writeConcern" => {
                let field = field("writeConcern")?;
                if !field.is_null() {
                    self.write_concern = write_concern::parse(command, &field)?;
                    self.write_concern_given = true;
                }
            }
            b"readConcern" => {
                let field = field("readConcern")?;
                if !field.is_null() {
                    let concern = read_concern::parse(field.document()?)?;
                    if !command.goes_by_its_cursors {
                        self.read_concern = concern;
                    }
                }
            }
            b"txnNumber" => self.txn_number = Some(field("txnNumber")?.long()?),
            b"autocommit" => self.autocommit = Some(field("autocommit")?.strict_bool()?),
            b"startTransaction" => {
                self.start_transaction = Some(field("startTransaction")?.strict_bool()?);
            }
            b"apiVersion" => self.api_version = Some(field("apiVersion")?.str()?),
            b"apiStrict" => self.api_strict = Some(field("apiStrict")?.strict_bool()?),
            // No command of ours is deprecated in version 1.
            b"apiDeprecationErrors" => {
                self.api_deprecation_errors = Some(field("apiDeprecationErrors")?.strict_bool()?);
            }
            b"$readPreference" => {
                self.secondary_ok = parse_read_preference(&field("$readPreference")?)?;
            }
            b"$clusterTime" => self.cluster_time = parse_cluster_time(&field("$clusterTime")?)?,
            b"$db"
            | b"$client"
            | b"$audit"
            | b"$configTime"
            | b"$topologyTime"
            | b"$queryOptions"
            | b"maxTimeMSOpOnly"
            | b"clientOperationKey"
            | b"help"
            | b"mayBypassWriteBlocking" => {}
            // Of Queryable Encryption, which is not built: what it keeps must be kept exactly, so that it is refused where
            // it begins, whatever the command.
            b"encryptionInformation" => return Err(field("encryptionInformation")?.not_yet()),
            // Nothing is stored in another form than clients see: measurements are documents here.
            b"rawData" => {
                let field = field("rawData")?;
                if !field.is_null() {
                    field.bool()?;
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Whether the client has declared the version of the API that it uses.
    pub fn names_api_version(&self) -> bool {
        self.api_version.is_some()
    }

    /// Whether only what belongs to API version 1 may be used.
    pub fn is_strict(&self) -> bool {
        self.api_strict == Some(true)
    }

    fn check_api(&self, command: &Rules) -> Result<()> {
        let Some(version) = self.api_version else {
            if self.api_strict.or(self.api_deprecation_errors).is_some() {
                return Err(Error::location(
                    4886600,
                    "Provided apiStrict and/or apiDeprecationErrors without passing apiVersion",
                ));
            }
            return Ok(());
        };
        if version != "1" {
            return Err(Error::new(
                Code::API_VERSION_ERROR,
                "API version must be \"1\"".to_owned(),
            ));
        }
        if self.is_strict() && !command.api_v1 {
            return Err(not_in_api(command.name));
        }
        Ok(())
    }

    fn check_transaction(&mut self) -> Result<()> {
        let invalid = |text: &str| Err(Error::new(Code::INVALID_OPTIONS, text));
        let Some(number) = self.txn_number else {
            if self.autocommit.is_some() {
                return invalid(
                    "'autocommit' field requires a transaction number to also be specified",
                );
            }
            if self.start_transaction.is_some() {
                return invalid(
                    "'startTransaction' field requires a transaction number to also be specified",
                );
            }
            return Ok(());
        };
        if self.session.is_none() {
            return invalid("Transaction number requires a session ID to also be specified");
        }
        if number < 0 {
            return invalid("Transaction number cannot be negative");
        }
        match (self.autocommit, self.start_transaction) {
            (Some(true), _) => return invalid("Specifying autocommit=true is not allowed."),
            (None, Some(_)) => {
                return invalid(
                    "'startTransaction' field requires 'autocommit' field to also be specified",
                );
            }
            (_, Some(false)) => {
                return invalid("Specifying startTransaction=false is not allowed.");
            }
            _ => {}
        }
        self.numbered = Some(Numbered {
            number,
            in_transaction: self.autocommit.is_some(),
            starts: self.start_transaction.is_some(),
        });
        Ok(())
    }
}

/// Whether a field says again which collection `create` makes.
fn repeats_create(command: &Rules, own: &[Field<'_>], element: &Element<'_>) -> Result<bool> {
    if element.name_bytes() != b"create" || command.name != "create" {
        return Ok(false);
    }
    Ok(matches!((own.first().map(|first| first.value), element.value()?),
        (Some(RawBsonRef::String(first)), RawBsonRef::String(again)) if first == again))
}

/// The refusal of a command that API version 1 does not have.
pub fn not_in_api(command: &str) -> Error {
    Error::new(
        Code::API_STRICT_ERROR,
        format!(
            "Provided apiStrict:true, but the command {command} is not in API Version 1. \
             Information on supported commands and migrations in API Version 1 can be found at \
             https://dochub.mongodb.org/core/manual-versioned-api"
        ),
    )
}

/// Whether API version 1 has a command without this field of it.
fn is_unstable(command: &str, field: &str) -> bool {
    match command {
        "find" => matches!(
            field,
            "awaitData"
                | "max"
                | "min"
                | "noCursorTimeout"
                | "oplogReplay"
                | "returnKey"
                | "showRecordId"
                | "tailable"
        ),
        "create" => matches!(
            field,
            "autoIndexId" | "capped" | "indexOptionDefaults" | "max" | "size" | "storageEngine"
        ),
        _ => false,
    }
}

/// `{id: <UUID>, uid: <digest of the user>}`: a session of the client's user.
pub fn parse_lsid(field: &Field<'_>, user: UserDigest) -> Result<SessionId> {
    let (id, named) = parse_any_lsid(field)?;
    if named.is_some_and(|named| named != user) {
        return Err(Error::new(
            Code::UNAUTHORIZED,
            "Unauthorized to set user digest in LogicalSessionId",
        ));
    }
    Ok(SessionId { id, user })
}

/// `{id: <UUID>, uid: <digest of the user>}`, of whomever: for those who may end others' sessions.
pub fn parse_any_lsid(field: &Field<'_>) -> Result<([u8; 16], Option<UserDigest>)> {
    let document = field.document()?;
    if let Some(id) = usual_lsid(document.as_bytes()) {
        return Ok((id, None));
    }
    let (mut id, mut user) = (None, None);
    for part in inner(document, "OperationSessionInfo.lsid") {
        let part = part?;
        match part.name {
            "id" => id = Some(part.uuid()?),
            "uid" => user = Some(parse_user(&part)?),
            // Transactions inside transactions: what routers send each other.
            "txnNumber" | "txnUUID" => return Err(part.not_yet()),
            _ => return Err(part.unknown()),
        }
    }
    let id = id.ok_or_else(|| crate::fields::missing("OperationSessionInfo.lsid", "id"))?;
    Ok((id, user))
}

/// The session of `{id: <UUID>}`, which is what drivers send with every command.
fn usual_lsid(document: &[u8]) -> Option<[u8; 16]> {
    // Its length, a binary value of that name, sixteen bytes that are a UUID.
    let id = document.strip_prefix(b"\x1e\0\0\0\x05id\0\x10\0\0\0\x04")?;
    id.strip_suffix(b"\0")?.try_into().ok()
}

/// A digest of a user's name. One of another length is nobody's.
fn parse_user(field: &Field<'_>) -> Result<UserDigest> {
    let RawBsonRef::Binary(digest) = field.value else {
        return Err(field.wrong_type("binData"));
    };
    digest.bytes.try_into().map(UserDigest).map_err(|_| {
        Error::new(Code::UNAUTHORIZED, "Unauthorized to set user digest in LogicalSessionId")
    })
}

fn parse_max_time(field: &Field<'_>) -> Result<Option<u64>> {
    if matches!(field.value, RawBsonRef::Null | RawBsonRef::Undefined) {
        return Ok(None);
    }
    let millis = field.i64()?;
    if bsonval::types::is_number(field.value)
        && bsonval::types::exact_integer(field.value).is_none()
    {
        return Err(Error::failed_to_parse("maxTimeMS has non-integral value"));
    }
    if millis < 0 {
        return Err(Error::bad_value(format!(
            "BSON field 'maxTimeMS' value must be >= 0, actual value '{millis}'"
        )));
    }
    if millis > i64::from(i32::MAX) {
        return Err(Error::bad_value(format!("{millis} value for maxTimeMS is out of range")));
    }
    Ok((millis > 0).then_some(millis as u64))
}

/// `{clusterTime: <timestamp>, signature: {hash, keyId}}`; without users nobody signs.
fn parse_cluster_time<'a>(field: &Field<'a>) -> Result<Option<SeenTime<'a>>> {
    let (mut time, mut signature) = (None, None);
    for part in inner_of(field.document()?, "$clusterTime", &["clusterTime", "signature"]) {
        let part = part?;
        match (part.name, part.value) {
            ("clusterTime", RawBsonRef::Timestamp(seen)) => time = Some(seen),
            ("clusterTime", _) => return Err(part.wrong_type("timestamp")),
            ("signature", _) => signature = parse_signature(part.document()?)?,
            _ => {}
        }
    }
    Ok(time.map(|time| SeenTime { time, signature }))
}

fn parse_signature(document: &RawDocument) -> Result<Option<ClientSignature<'_>>> {
    let (mut hash, mut key_id) = (None, None);
    for part in inner_of(document, "$clusterTime.signature", &["hash", "keyId"]) {
        let part = part?;
        match (part.name, part.value) {
            ("hash", RawBsonRef::Binary(bytes)) => hash = Some(bytes.bytes),
            ("hash", _) => return Err(part.wrong_type("binData")),
            // A client that has read a long brings another number back.
            ("keyId", _) => key_id = Some(part.i64()?),
            _ => {}
        }
    }
    Ok(hash.zip(key_id).map(|(hash, key_id)| ClientSignature { hash, key_id }))
}

/// Says whether a member may answer that is not primary.
fn parse_read_preference(field: &Field<'_>) -> Result<bool> {
    let RawBsonRef::Document(document) = field.value else {
        return Err(field.wrong_type("object"));
    };
    let mode = match raw::field(document, "mode")? {
        Some(RawBsonRef::String(mode)) => mode,
        Some(_) => return Err(Error::type_mismatch("mode field must be a string")),
        None => {
            return Err(Error::new(
                Code::NO_SUCH_KEY,
                "Missing expected field \"mode\"".to_owned(),
            ));
        }
    };
    match mode {
        "primary" => Ok(false),
        "primaryPreferred" | "secondary" | "secondaryPreferred" | "nearest" => Ok(true),
        other => Err(Error::bad_value(format!(
            "Enumeration value '{other}' for field '$readPreference.mode' is not a valid value."
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::{Binary, Document, RawDocumentBuf, Uuid, doc, spec::BinarySubtype};

    #[test]
    fn the_usual_session_is_read_at_once_and_as_any_other_is() {
        let id = Uuid::from_bytes([7; 16]);
        let bytes =
            |length: usize| Binary { subtype: BinarySubtype::Generic, bytes: vec![7; length] };
        let read = |document: Document| {
            let document = RawDocumentBuf::try_from(&document).unwrap();
            let value = RawBsonRef::Document(&document);
            let field = Field { place: "find", name: "lsid", value };
            let is_usual = usual_lsid(document.as_bytes()).is_some();
            (is_usual, parse_any_lsid(&field).map_err(|error| error.code()))
        };
        assert_eq!(read(doc! { "id": id }), (true, Ok(([7; 16], None))));
        let user = UserDigest([7; 32]);
        assert_eq!(read(doc! { "id": id, "uid": bytes(32) }), (false, Ok(([7; 16], Some(user)))));
        for other in [
            doc! {},
            doc! { "id": bytes(16) },
            doc! { "id": "a text of that many bytes" },
            doc! { "ID": id },
            doc! { "id": id, "id2": 1 },
        ] {
            let (is_usual, read) = read(other);
            assert!(!is_usual && read.is_err());
        }
    }
}
