"""Views that come and go, and suspended ones that come back, while a pipeline runs (DESIGN 5 and 11).

A *request* is a file that says what a person wants; each stage adds its word to it.

In the order to read them: `requests`, `asked_changes` (what `fresco view` checks), `announcements` (the
integrator's part), `regrouping` (the merge's part), `recovery` (suspended views try by themselves),
`skip`. The stages of such views are in `stages`: `joining_stage`, `returning_stage`.

Example: `fresco view add v.sql` writes request 3; the new stage loads its rows and says so; the
integrator announces that `v` joins at number 40; the merge gives it a column, and its first commit ends
the request.
"""
