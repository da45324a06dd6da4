//! Tables of expressions: what each yields for a document.
