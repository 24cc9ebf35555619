//! Broken rules of calls. The search must find a violation for each.

crate::defect::defects! {
    KeyChangedOnRetry: "a call is repeated under another key" => ChargedOnce,
    OldKeyUsedAgain: "a key is used again however old it is" => ChargedOnce,
    KeyUsedToItsEnd: "a key is used to the end of its life, without a margin" => ChargedOnce,
    NewKeyWithoutAsking: "a new key follows an old one without asking the provider" => ChargedOnce,
    CalledAtAfterTheCall: "the time of the first call is written after it" => ChargedOnce,
    KeptAnswerIgnored: "a call is repeated although its answer is kept" => AnswersKept,
    AnswerNotKept: "the answer is not kept before the completion" => InnocentsLive,
    CompletedWithoutToken: "a completion does not delete its row by the token" => NothingTwice,
    BegunCallRepeated: "a call to a provider without keys is repeated" => ChargedOnce,
    LeaseShorterThanTheCall: "a lease ends before the call can have ended" => ChargedOnce,
    DoubtGivesBackAtOnce: "a call in doubt makes its row due before the call can have ended" => ChargedOnce,
    CallsAfterItsLease: "a worker calls without looking at its lease" => ChargedOnce,
    BusyIsADoubt: "a call that certainly had no effect counts as begun" => InnocentsLive,
    SendsAfterAPause: "a worker looks at its lease when a call begins, and not when it sends" => ChargedOnce,
    ReplayEndsTheLease: "a replay makes a call in doubt due at once" => ChargedOnce,
    ResolvesTooEarly: "an operator lets call again while a request may be on its way" => ChargedOnce,
    KeyMadeAtTheFetch: "a key is made when its row is fetched, and is not in a backup" => ChargedOnce,
    KeyReplaced: "a new key replaces one under which nothing was found" => ChargedOnce,
    FirstKeyRandom: "the first key of a message from a stream is random" => ChargedOnce,
    FirstKeyOfTheContent: "the first key of a message is that of each one with its key and content" => NothingLost,
}
