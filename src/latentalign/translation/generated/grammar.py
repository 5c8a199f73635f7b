"""The grammar of the generated corpus: one sentence at a time, in both languages at once.

Determiners, adjectives and verbs agree; verbs go to the end of subordinate clauses, and so do participles,
infinitives and separable particles; compounds and contractions stand for several English words. Modifiers,
adjuncts, the parts of a coordination and whole clauses come in an order of their own on each side, so that
what has been translated does not tell which source word is next.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple, TypeVar

from latentalign.translation.generated import lexicon as words

Item = TypeVar("Item")


class Token(NamedTuple):
    """A word and the meanings it carries; words that share a meaning are linked."""

    word: str
    meanings: frozenset[int]


class Phrase(NamedTuple):
    """The same thing in both languages."""

    german: list[Token]
    english: list[Token]


@dataclass
class Subject:
    """A phrase and its number, with which the verb agrees."""

    phrase: Phrase
    plural: bool


@dataclass
class Predicate:
    """The verb's parts: what stands second or last, what closes a clause, and the English verb before the object."""

    finite: Token
    closing: list[Token]  # of a main clause
    final: list[Token]  # of a subordinate clause, the finite verb included
    english: list[Token]
    english_particle: list[Token]


@dataclass
class Writer:
    """Builds one sentence pair from a stream of random numbers."""

    random: Random
    _meanings: int = field(default=0)

    def sentence(self) -> Phrase:
        main = self.clause()
        comma, stop = self.meaning(), self.meaning()
        german: list[Token]
        english: list[Token]
        if self.chance(0.4):
            german_conjunction, english_conjunction = self.choose(words.CONJUNCTIONS)
            because = self.meaning()
            side = self.clause()
            side_german = [Token(german_conjunction, because), *side.german_subordinate()]
            side_english = [Token(english_conjunction, because), *side.english]
            between = Token(",", comma)
            if self.chance(0.4):
                german = [*side_german, between, *main.german_main(inverted=True)]
            else:
                german = [*main.german_main(), between, *side_german]
            in_front = self.chance(0.4)
            english = [*side_english, between, *main.english] if in_front else [*main.english, *side_english]
        else:
            german, english = main.german_main(), main.english
        return Phrase([*german, Token(".", stop)], [*english, Token(".", stop)])

    # --- clauses ---

    def clause(self) -> "Clause":
        subject = self.subject()
        transitive = self.chance(0.65)
        predicate = self.predicate(words.TRANSITIVE if transitive else words.INTRANSITIVE, subject.plural)
        target = [self.noun_phrase("accusative", words.THINGS)] if transitive else []
        makers: list[Callable[[], Phrase]] = [self.time, self.manner, self.place, self.company]
        self.random.shuffle(makers)
        count = self.random.choices([0, 1, 2, 3], [2, 3, 3, 2])[0]
        adjuncts = [make() for make in makers[:count]]
        shuffled = list(adjuncts)
        self.random.shuffle(shuffled)  # the English order is its own
        fronted = adjuncts.pop() if adjuncts and self.chance(0.35) else None
        first = shuffled.pop() if shuffled and self.chance(0.25) else None
        english = [
            *(first.english if first else []),
            *subject.phrase.english,
            *predicate.english,
            *(token for phrase in target for token in phrase.english),
            *predicate.english_particle,
            *(token for phrase in shuffled for token in phrase.english),
        ]
        middle = [token for phrase in [*target, *adjuncts] for token in phrase.german]
        return Clause(subject.phrase.german, predicate, middle, fronted.german if fronted else [], english)

    def subject(self) -> Subject:
        if self.chance(0.3):
            one, other = self.person(), self.person()
            both = self.meaning()
            first, second = (other, one) if self.chance(0.5) else (one, other)
            german = [*one.phrase.german, Token("und", both), *other.phrase.german]
            english = [*first.phrase.english, Token("and", both), *second.phrase.english]
            return Subject(Phrase(german, english), plural=True)
        return self.person()

    def person(self) -> Subject:
        if self.chance(0.25):
            name = Token(self.choose(words.NAMES), self.meaning())
            return Subject(Phrase([name], [name]), plural=False)
        plural = self.chance(0.3)
        return Subject(self.noun_phrase("nominative", words.PEOPLE, plural=plural), plural)

    def predicate(self, verbs: list[words.Verb], plural: bool) -> Predicate:
        verb = self.choose(verbs)
        meaning, helper = self.meaning(), self.meaning()
        particle = [Token(verb.english_particle, meaning)] if verb.english_particle else []
        infinitive = Token(verb.particle + verb.infinitive, meaning)
        participle = Token(verb.participle, meaning)
        negation = self.meaning() if self.chance(0.2) else None
        nicht = [Token("nicht", negation)] if negation else []
        tense = self.random.choices(["present", "past", "modal"], [4, 3, 3])[0]
        if tense == "modal":
            modal = self.choose(words.MODALS[:3] if negation else words.MODALS)
            finite, closing = Token(modal[plural], helper), [*nicht, infinitive]
            english = [Token(word, helper) for word in modal[2 + plural].split()]
            english += [*_not(negation), Token(verb.english, meaning)]
            return Predicate(finite, closing, [*closing, finite], english, particle)
        if tense == "past":
            stands = "ist" if verb.participle == "aufgestanden" else "hat"
            several = "sind" if stands == "ist" else "haben"
            finite, closing = Token(several if plural else stands, helper), [*nicht, participle]
            whole = [Token("did", helper), *_not(negation), Token(verb.english, meaning)]
            english = whole if negation else [Token(verb.english_past, meaning | helper)]
            return Predicate(finite, closing, [*closing, finite], english, particle)
        form = verb.infinitive if plural else verb.present
        closing = [*nicht, *([Token(verb.particle, meaning)] if verb.particle else [])]
        final = [*nicht, Token(verb.particle + form, meaning)]
        if negation:
            english = [
                Token("do" if plural else "does", negation),
                *_not(negation),
                Token(verb.english, meaning),
            ]
        else:
            english = [Token(verb.english if plural else verb.english_present, meaning)]
        return Predicate(Token(form, meaning), closing, final, english, particle)

    # --- phrases ---

    def noun_phrase(self, case: str, nouns: list[words.Noun], *, plural: bool | None = None) -> Phrase:
        noun = self.choose(nouns)
        several = self.chance(0.3) if plural is None else plural
        column = 3 if several else "mfn".index(noun.gender)
        kind = self.random.choices(["the", "a", "this"], [5, 4, 2])[0]
        determiner, thing = self.meaning(), self.meaning()
        german = [Token(words.DETERMINERS[kind, case][column], determiner)]
        ending = words.ENDINGS["a" if kind == "a" else "the", case][column]
        adjectives = self.random.sample(words.ADJECTIVES, self.random.choices([0, 1, 2], [5, 4, 2])[0])
        qualities = [(adjective, self.meaning()) for adjective in adjectives]
        german += [Token(adjective[0] + ending, quality) for adjective, quality in qualities]
        self.random.shuffle(qualities)
        english = [Token(adjective[1], quality) for adjective, quality in qualities]
        form = (noun.dative_plural if case == "dative" else noun.plural) if several else noun.singular
        english_form = Token(noun.english_plural if several else noun.english, thing)
        if nouns is words.THINGS and self.chance(0.3):
            head, english_head = self.choose(words.COMPOUND_HEADS)
            part = self.meaning()
            german.append(Token(head + form.lower(), thing | part))
            english += [Token(english_head, part), english_form]
        else:
            german.append(Token(form, thing))
            english.append(english_form)
        english.insert(0, Token(_english_determiner(kind, several, english[0].word), determiner))
        return Phrase(german, english)

    def place(self) -> Phrase:
        german, english = self.choose(words.PREPOSITIONS)
        return self._prepositional(german, english, words.PLACES)

    def company(self) -> Phrase:
        nouns = words.PEOPLE if self.chance(0.5) else words.THINGS
        return self._prepositional("mit", "with", nouns)

    def _prepositional(self, german: str, english: str, nouns: list[words.Noun]) -> Phrase:
        meaning = self.meaning()
        inside = self.noun_phrase("dative", nouns)
        article = inside.german[0]
        short = words.CONTRACTIONS.get((german, article.word))
        if short is not None:
            before = [Token(short, meaning | article.meanings), *inside.german[1:]]
        else:
            before = [Token(german, meaning), *inside.german]
        return Phrase(before, [*(Token(word, meaning) for word in english.split()), *inside.english])

    def time(self) -> Phrase:
        return self._adverb(words.TIMES)

    def manner(self) -> Phrase:
        return self._adverb(words.MANNERS)

    def _adverb(self, choices: list[tuple[str, str]]) -> Phrase:
        german, english = self.choose(choices)
        meaning = self.meaning()
        return Phrase([Token(german, meaning)], [Token(word, meaning) for word in english.split()])

    # --- chance ---

    def meaning(self) -> frozenset[int]:
        self._meanings += 1
        return frozenset([self._meanings])

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def choose(self, items: list[Item]) -> Item:
        return self.random.choice(items)


class Clause(NamedTuple):
    """The parts of a clause, for the German orders to choose from."""

    subject: list[Token]
    predicate: Predicate
    middle: list[Token]
    fronted: list[Token]
    english: list[Token]

    def german_main(self, *, inverted: bool = False) -> list[Token]:
        """The verb second; after a clause in front of it, first."""
        finite, closing = self.predicate.finite, self.predicate.closing
        if inverted:
            return [finite, *self.subject, *self.fronted, *self.middle, *closing]
        if self.fronted:
            return [*self.fronted, finite, *self.subject, *self.middle, *closing]
        return [*self.subject, finite, *self.middle, *closing]

    def german_subordinate(self) -> list[Token]:
        """The verb last."""
        return [*self.subject, *self.fronted, *self.middle, *self.predicate.final]


def _not(negation: frozenset[int] | None) -> list[Token]:
    return [Token("not", negation)] if negation else []


def _english_determiner(kind: str, plural: bool, following: str) -> str:
    if kind == "this":
        return "these" if plural else "this"
    if kind == "a":
        return "some" if plural else ("an" if following[0] in "aeiou" else "a")
    return "the"
